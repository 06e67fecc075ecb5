// mma.sync: D = A * B + C on tiles of 16 by 8 or 8 by 8, one warp for each tile.
//
// Operands are fragments, packed on the host: the registers of lane 0, of lane 1, ... Registers are unsigned integers,
// whatever their type. Defined by the compiler's options:
//   MNEMONIC                              the instruction, as "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
//   D_REGISTERS A_REGISTERS B_REGISTERS   the number of registers of a lane
//   WIDE                                  1 if they have 64 bits
// and for block-scaled kinds, whose lanes hold a register of scales for A and one for B:
//   SCALED                                1
// and for the kernel `rate`:
//   THREADS CHAINS                        threads of a block; accumulators of a warp
//
// The order of sums in `gemm` is that of fs.TensorCore: K in steps of one instruction, ascending; the D of one step is
// the C of the next. With `every` it is that of fs.Blocked(TensorCore, every * k, fs.Sequential(FP32)): after `every`
// steps the CUDA cores add the accumulator to the total and a new one starts. (For FP64 the total is FP64.)

#if WIDE
typedef unsigned long long word;
#define REGISTER "l"
#define ADD "add.rn.f64 %0, %0, %1;"
#else
typedef unsigned int word;
#define REGISTER "r"
#define ADD "add.rn.f32 %0, %0, %1;"
#endif

#define D2 "{%0,%1}"
#define D4 "{%0,%1,%2,%3}"
#define D8 "{%0,%1,%2,%3,%4,%5,%6,%7}"
#define IN(x, i) REGISTER(x[i])
#define IN2(x, i) IN(x, i), IN(x, i + 1)
#define IN4(x, i) IN2(x, i), IN2(x, i + 2)
#define IN8(x, i) IN4(x, i), IN4(x, i + 4)
#define OUT(x, i) "+" REGISTER(x[i])
#define OUT2(x, i) OUT(x, i), OUT(x, i + 1)
#define OUT4(x, i) OUT2(x, i), OUT2(x, i + 2)
#define OUT8(x, i) OUT4(x, i), OUT4(x, i + 4)

// acc = a * b + acc
__device__ __forceinline__ void execute(word* acc, const word* a, const word* b, const word* scales) {
#if SCALED
    // scales come from byte 0 of the registers of lanes 0 and 1 of every four (A), and of lane 0 (B)
    asm volatile(MNEMONIC " " D4 ", {%4,%5,%6,%7}, {%8,%9}, " D4 ", {%10}, {0,0}, {%11}, {0,0};"
                 : OUT4(acc, 0) : IN4(a, 0), IN2(b, 0), IN2(scales, 0));
#elif D_REGISTERS == 2 && A_REGISTERS == 1 && B_REGISTERS == 1
    asm volatile(MNEMONIC " " D2 ", {%2}, {%3}, " D2 ";" : OUT2(acc, 0) : IN(a, 0), IN(b, 0));
#elif D_REGISTERS == 2 && A_REGISTERS == 2 && B_REGISTERS == 1
    asm volatile(MNEMONIC " " D2 ", {%2,%3}, {%4}, " D2 ";" : OUT2(acc, 0) : IN2(a, 0), IN(b, 0));
#elif D_REGISTERS == 2 && A_REGISTERS == 4 && B_REGISTERS == 2
    asm volatile(MNEMONIC " " D2 ", {%2,%3,%4,%5}, {%6,%7}, " D2 ";" : OUT2(acc, 0) : IN4(a, 0), IN2(b, 0));
#elif D_REGISTERS == 4 && A_REGISTERS == 2 && B_REGISTERS == 1
    asm volatile(MNEMONIC " " D4 ", {%4,%5}, {%6}, " D4 ";" : OUT4(acc, 0) : IN2(a, 0), IN(b, 0));
#elif D_REGISTERS == 4 && A_REGISTERS == 2 && B_REGISTERS == 2
    asm volatile(MNEMONIC " " D4 ", {%4,%5}, {%6,%7}, " D4 ";" : OUT4(acc, 0) : IN2(a, 0), IN2(b, 0));
#elif D_REGISTERS == 4 && A_REGISTERS == 4 && B_REGISTERS == 2
    asm volatile(MNEMONIC " " D4 ", {%4,%5,%6,%7}, {%8,%9}, " D4 ";" : OUT4(acc, 0) : IN4(a, 0), IN2(b, 0));
#elif D_REGISTERS == 4 && A_REGISTERS == 8 && B_REGISTERS == 4
    asm volatile(MNEMONIC " " D4 ", {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, " D4 ";"
                 : OUT4(acc, 0) : IN8(a, 0), IN4(b, 0));
#elif D_REGISTERS == 8 && A_REGISTERS == 2 && B_REGISTERS == 2
    asm volatile(MNEMONIC " " D8 ", {%8,%9}, {%10,%11}, " D8 ";" : OUT8(acc, 0) : IN2(a, 0), IN2(b, 0));
#else
#error "no form of the instruction has so many registers"
#endif
}

__device__ __forceinline__ void load(word* to, const word* from, size_t tile, int count) {
    for (int i = 0; i < count; i++) to[i] = from[(tile * 32 + threadIdx.x) * count + i];
}

__device__ __forceinline__ void store(word* to, const word* from, size_t tile) {
    for (int i = 0; i < D_REGISTERS; i++) to[(tile * 32 + threadIdx.x) * D_REGISTERS + i] = from[i];
}

__device__ __forceinline__ void load_scales(word* both, const word* of_a, const word* of_b, size_t a, size_t b) {
#if SCALED
    both[0] = of_a[a * 32 + threadIdx.x];
    both[1] = of_b[b * 32 + threadIdx.x];
#endif
}

// One instruction on each of gridDim.x tiles. Fragments (tiles, 32, registers); one register of scales.
extern "C" __global__ void single(const word* a, const word* b, const word* scales_a, const word* scales_b,
                                  const word* c, word* d) {
    word acc[D_REGISTERS], left[A_REGISTERS], right[B_REGISTERS], scales[2] = {0, 0};
    const size_t tile = blockIdx.x;
    load(acc, c, tile, D_REGISTERS);
    load(left, a, tile, A_REGISTERS);
    load(right, b, tile, B_REGISTERS);
    load_scales(scales, scales_a, scales_b, tile, tile);
    execute(acc, left, right, scales);
    store(d, acc, tile);
}

// A matrix product; blockIdx.x counts its tiles by rows of `columns` tiles. Fragments: a and its scales (rows, steps,
// 32, registers), b and its scales (columns, steps, 32, registers), c and d (rows, columns, 32, registers).
extern "C" __global__ void gemm(const word* a, const word* b, const word* scales_a, const word* scales_b,
                                const word* c, word* d, int columns, int steps, int every) {
    word acc[D_REGISTERS], total[D_REGISTERS], left[A_REGISTERS], right[B_REGISTERS], scales[2] = {0, 0};
    const size_t of_a = (size_t)(blockIdx.x / columns) * steps, of_b = (size_t)(blockIdx.x % columns) * steps;
    load(total, c, blockIdx.x, D_REGISTERS);
    const int part = every ? every : steps;
    for (int start = 0; start < steps; start += part) {
        for (int i = 0; i < D_REGISTERS; i++) acc[i] = every ? 0 : total[i];
        for (int step = start; step < min(start + part, steps); step++) {
            load(left, a, of_a + step, A_REGISTERS);
            load(right, b, of_b + step, B_REGISTERS);
            load_scales(scales, scales_a, scales_b, of_a + step, of_b + step);
            execute(acc, left, right, scales);
        }
        for (int i = 0; i < D_REGISTERS; i++) {
            if (every) asm volatile(ADD : "+" REGISTER(total[i]) : REGISTER(acc[i]));
            else total[i] = acc[i];
        }
    }
    store(d, total, blockIdx.x);
}

// Throughput: `steps` times CHAINS instructions from registers, on independent accumulators. Every warp has the same
// operands, a tile of a and CHAINS tiles of b, (32, registers) each. `out`, from all threads, is not read. `zero` is 0,
// but the compiler does not know that. On devices where an instruction is a sequence of others, such as FP8 on some,
// the compiler would otherwise compute the parts that are equal in all steps only once.
extern "C" __global__ void __launch_bounds__(THREADS)
rate(const word* a, const word* b, const word* scales_a, const word* scales_b, word* out, int steps, word zero) {
    word acc[CHAINS][D_REGISTERS], left[A_REGISTERS], right[CHAINS][B_REGISTERS], scales[2] = {0, 0}, all = 0;
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < A_REGISTERS; i++) left[i] = a[lane * A_REGISTERS + i];
#if SCALED
    scales[0] = scales_a[lane];
    scales[1] = scales_b[lane];
#endif
#pragma unroll
    for (int chain = 0; chain < CHAINS; chain++) {
        for (int i = 0; i < B_REGISTERS; i++) right[chain][i] = b[(chain * 32 + lane) * B_REGISTERS + i];
        for (int i = 0; i < D_REGISTERS; i++) acc[chain][i] = 0;
    }
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        left[0] += zero;
#pragma unroll
        for (int chain = 0; chain < CHAINS; chain++) execute(acc[chain], left, right[chain], scales);
    }
#pragma unroll
    for (int chain = 0; chain < CHAINS; chain++) {
        for (int i = 0; i < D_REGISTERS; i++) all ^= acc[chain][i];
    }
    out[(size_t)blockIdx.x * THREADS + threadIdx.x] = all;
}
