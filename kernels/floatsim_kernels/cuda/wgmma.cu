// wgmma.mma_async (sm_90a): D = A * B + C on tiles of 64 by 8, four warps for each tile, A and B in shared memory.
//
// A and B are images of shared memory, packed on the host: K-major without swizzling, 32 bytes of a row in two core
// matrices of 8 rows by 16 bytes (PTX ISA, 9.7.15.5.1). C and D are the registers of thread 0, thread 1, ... Defined by
// the compiler's options:
//   MNEMONIC       the instruction, as "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
//   D_REGISTERS    4; 2 for FP16, where a register holds two numbers
//   TRANSPOSABLE   1 for 16-bit operands, whose instruction states that they are not transposed
// and for the kernel `rate`, whose tiles are 64 by 256:
//   RATE_MNEMONIC RATE_OPERANDS   its instruction, and the numbers of its registers and descriptors
//   RATE_REGISTERS                128; 64 for FP16
//   RATE_THREADS CHAIN            threads of a block; instructions between two waits
//
// The order of sums in `gemm` is that of mma.cu.

typedef unsigned int word;

#define A_WORDS 512  // 64 rows of 32 bytes
#define B_WORDS 64   // 8 columns
#define THREADS 128

#if TRANSPOSABLE
#define TAIL "p, 1, 1, 0, 0;}"
#else
#define TAIL "p, 1, 1;}"
#endif
#define BEGIN "{.reg .pred p; setp.ne.b32 p, 1, 0; "  // scale-d is 1: C is added

// The descriptor of an image: its address, 128 bytes to the next core matrix along K, 256 to the next 8 rows, in 16
// bytes.
__device__ __forceinline__ unsigned long long descriptor(const word* image) {
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(image);
    return (unsigned long long)((address & 0x3FFFF) >> 4) | (128ULL >> 4) << 16 | (256ULL >> 4) << 32;
}

// acc = a * b + acc; the images are already in shared memory
__device__ __forceinline__ void execute(word* acc, const word* a, const word* b) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the unit sees the writes of threads
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#if D_REGISTERS == 4
    asm volatile(BEGIN MNEMONIC " {%0,%1,%2,%3}, %4, %5, " TAIL
                 : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3]) : "l"(descriptor(a)), "l"(descriptor(b)) : "memory");
#else
    asm volatile(BEGIN MNEMONIC " {%0,%1}, %2, %3, " TAIL
                 : "+r"(acc[0]), "+r"(acc[1]) : "l"(descriptor(a)), "l"(descriptor(b)) : "memory");
#endif
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();  // the images may be overwritten
}

__device__ __forceinline__ void copy(word* to, const word* from, int count) {
    for (int i = threadIdx.x; i < count; i += THREADS) to[i] = from[i];
}

__device__ __forceinline__ size_t place(size_t tile, int i) { return (tile * THREADS + threadIdx.x) * D_REGISTERS + i; }

// One instruction on each of gridDim.x tiles. Images (tiles, words) of a and b, registers (tiles, 128, n) of c and d.
extern "C" __global__ void __launch_bounds__(THREADS)
single(const word* a, const word* b, const word*, const word*, const word* c, word* d) {
    __shared__ __align__(256) word left[A_WORDS], right[B_WORDS];
    word acc[D_REGISTERS];
    copy(left, a + (size_t)blockIdx.x * A_WORDS, A_WORDS);
    copy(right, b + (size_t)blockIdx.x * B_WORDS, B_WORDS);
    for (int i = 0; i < D_REGISTERS; i++) acc[i] = c[place(blockIdx.x, i)];
    execute(acc, left, right);
    for (int i = 0; i < D_REGISTERS; i++) d[place(blockIdx.x, i)] = acc[i];
}

// A product of matrices: see mma.cu. Neither kernel has scales.
extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const word* a, const word* b, const word*, const word*, const word* c, word* d, int columns, int steps, int every) {
    __shared__ __align__(256) word left[A_WORDS], right[B_WORDS];
    word acc[D_REGISTERS], total[D_REGISTERS];
    const size_t of_a = (size_t)(blockIdx.x / columns) * steps, of_b = (size_t)(blockIdx.x % columns) * steps;
    for (int i = 0; i < D_REGISTERS; i++) total[i] = c[place(blockIdx.x, i)];
    const int part = every ? every : steps;
    for (int start = 0; start < steps; start += part) {
        for (int i = 0; i < D_REGISTERS; i++) acc[i] = every ? 0 : total[i];
        for (int step = start; step < min(start + part, steps); step++) {
            copy(left, a + (of_a + step) * A_WORDS, A_WORDS);
            copy(right, b + (of_b + step) * B_WORDS, B_WORDS);
            execute(acc, left, right);
        }
        for (int i = 0; i < D_REGISTERS; i++) {
            if (every) asm volatile("add.rn.f32 %0, %0, %1;" : "+r"(total[i]) : "r"(acc[i]));
            else total[i] = acc[i];
        }
    }
    for (int i = 0; i < D_REGISTERS; i++) d[place(blockIdx.x, i)] = total[i];
}

#define ADD2(x, i) "+r"(x[i]), "+r"(x[i + 1])
#define ADD4(x, i) ADD2(x, i), ADD2(x, i + 2)
#define ADD8(x, i) ADD4(x, i), ADD4(x, i + 4)
#define ADD16(x, i) ADD8(x, i), ADD8(x, i + 8)
#define ADD32(x, i) ADD16(x, i), ADD16(x, i + 16)
#define ADD64(x, i) ADD32(x, i), ADD32(x, i + 32)
#define ADD128(x, i) ADD64(x, i), ADD64(x, i + 64)
#if RATE_REGISTERS == 128
#define ACCUMULATOR(x) ADD128(x, 0)
#else
#define ACCUMULATOR(x) ADD64(x, 0)
#endif

// Throughput: `steps` times CHAIN instructions from shared memory; each group of four warps has its own accumulator.
// Images of one tile of a and of 8 columns of b, which is copied 32 times. `out` takes a word of each thread.
extern "C" __global__ void __launch_bounds__(RATE_THREADS)
rate(const word* a, const word* b, const word*, const word*, word* out, int steps, word) {
    __shared__ __align__(256) word left[A_WORDS], right[32 * B_WORDS];
    word acc[RATE_REGISTERS], all = 0;
    for (int i = threadIdx.x; i < A_WORDS; i += RATE_THREADS) left[i] = a[i];
    for (int i = threadIdx.x; i < 32 * B_WORDS; i += RATE_THREADS) right[i] = b[i % B_WORDS];
#pragma unroll
    for (int i = 0; i < RATE_REGISTERS; i++) acc[i] = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned long long of_a = descriptor(left), of_b = descriptor(right);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < CHAIN; i++) {
            asm volatile(BEGIN RATE_MNEMONIC " " RATE_OPERANDS ", " TAIL
                         : ACCUMULATOR(acc) : "l"(of_a), "l"(of_b) : "memory");
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
#pragma unroll
    for (int i = 0; i < RATE_REGISTERS; i++) all ^= acc[i];
    out[(size_t)blockIdx.x * RATE_THREADS + threadIdx.x] = all;
}
