// tcgen05.mma (sm_100a, sm_100f, sm_103a): D = A * B + C on tiles of 128 by 16, A and B in shared memory, C and D in tensor memory.
//
// A and B are images of shared memory, packed on the host: K-major without swizzling, 32 bytes of a row in two core
// matrices of 8 rows by 16 bytes (PTX ISA, 9.7.16.4.1). C and D are 16 words for thread 0, thread 1, ...: each thread
// has a row. Defined by the compiler's options:
//   MNEMONIC       the instruction, as "tcgen05.mma.cta_group::1.kind::f16"
//   DESCRIPTOR     types and sizes in the instruction descriptor (PTX ISA, 9.7.16.4.2)
//   SCALED         1 for block-scaled kinds: each thread has 4 words of scales of A and 4 of B, one for a row; the row
//                  of word i is the thread's lane + 32 i, and all warps hold the same (PTX ISA, 9.7.16.10.7)
// and for the kernel `rate`, whose tiles are 128 by 256:
//   RATE_DESCRIPTOR the descriptor of that tile
//   CHAIN           instructions of a step
//
// The order of sums in `gemm` is that of mma.cu.

typedef unsigned int word;

#define A_WORDS 1024  // 128 rows of 32 bytes
#define B_WORDS 128   // 16 columns
#define COLUMNS 16
#define RATE_COLUMNS 256
#define OF_A(columns) (columns)      // first columns of the scales of A (after D) and of B in tensor memory
#define OF_B(columns) (columns + 4)
#define THREADS 128

#define REGISTERS16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define ALL16(x, io)                                                                                          \
    io(x[0]), io(x[1]), io(x[2]), io(x[3]), io(x[4]), io(x[5]), io(x[6]), io(x[7]), io(x[8]), io(x[9]),     \
        io(x[10]), io(x[11]), io(x[12]), io(x[13]), io(x[14]), io(x[15])
#define OUT(x) "=r"(x)
#define IN(x) "r"(x)

struct Shared {
    __align__(256) word left[A_WORDS];
    __align__(256) word right[RATE_COLUMNS / COLUMNS * B_WORDS];
    __align__(8) unsigned long long barrier;
    word memory;  // the address of the tensor memory
};

__device__ __forceinline__ word address(const void* x) { return (word)__cvta_generic_to_shared(x); }

// The descriptor of an image: its address, 128 bytes to the next core matrix along K, 256 bytes to the next 8 rows, in
// units of 16 bytes. Bit 46 is always set.
__device__ __forceinline__ unsigned long long descriptor(const word* image) {
    return (unsigned long long)((address(image) & 0x3FFFF) >> 4) | (128ULL >> 4) << 16 | (256ULL >> 4) << 32 | 1ULL << 46;
}

// A fence: all threads see the writes of other threads, and of the unit to tensor memory.
__device__ __forceinline__ void meet() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// Allocate this many columns of tensor memory: a power of two, at least 32.
template <int allocated> __device__ __forceinline__ void begin(Shared& s) {
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address(&s.memory)), "n"(allocated) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&s.barrier)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();
}

template <int allocated> __device__ __forceinline__ void end(Shared& s) {
    meet();
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(s.memory), "n"(allocated));
    }
}

// A warp's part of tensor memory: 32 rows. The upper half of an address is the row.
__device__ __forceinline__ word rows(const Shared& s) { return s.memory + ((threadIdx.x / 32 * 32) << 16); }

__device__ __forceinline__ void put(const Shared& s, const word* x) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], " REGISTERS16 ";" ::ALL16(x, IN), "r"(rows(s)) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void get(const Shared& s, word* x) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 " REGISTERS16 ", [%16];" : ALL16(x, OUT) : "r"(rows(s)) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void put_scales(const Shared& s, const word* of_a, const word* of_b, size_t a, size_t b) {
#if SCALED
    const word *x = of_a + (a * THREADS + threadIdx.x) * 4, *y = of_b + (b * THREADS + threadIdx.x) * 4;
    asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%4], {%0,%1,%2,%3};" ::IN(x[0]), IN(x[1]), IN(x[2]), IN(x[3]), "r"(rows(s) + OF_A(COLUMNS)) : "memory");
    asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%4], {%0,%1,%2,%3};" ::IN(y[0]), IN(y[1]), IN(y[2]), IN(y[3]), "r"(rows(s) + OF_B(COLUMNS)) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
#endif
}

#if SCALED
#define SCALES "[%4], [%5], "
#else
#define SCALES
#endif

// One thread issues D = A * B + D in tensor memory; the images are already in shared memory.
template <int columns> __device__ __forceinline__ void issue(const Shared& s, word descriptor_of_both) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0; " MNEMONIC " [%0], %1, %2, %3, " SCALES "p;}"
                 ::"r"(s.memory), "l"(descriptor(s.left)), "l"(descriptor(s.right)), "r"(descriptor_of_both),
                   "r"(s.memory + OF_A(columns)), "r"(s.memory + OF_B(columns)) : "memory");
}

// The barrier completes after all operations that the thread has issued.
__device__ __forceinline__ void commit(Shared& s) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(address(&s.barrier)) : "memory");
}

// Whether the barrier has completed this phase. The thread is suspended for at most about 1000 ns.
__device__ __forceinline__ bool done(Shared& s, int phase) {
    word result;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p;}"
                 : "=r"(result) : "r"(address(&s.barrier)), "r"(phase) : "memory");
    return result;
}

// Wait for the barrier in all threads; `phase` is 0, 1, 0, 1, ... A barrier that never completes must not hang the GPU:
// the kernel traps after TRIES tries. The longest wait of a correct kernel is that of `rate`, about 12 ms by the choice
// of its steps (throughput.py). A try accesses shared memory, which takes more than 20 cycles, 10 ns at 2 GHz: 2^25
// tries take at least 0.3 s. With the suspension of 1000 ns in each try, they take about 34 s.
#define TRIES (1u << 25)
__device__ __forceinline__ void wait(Shared& s, int phase) {
    for (word tries = 0; !done(s, phase); tries++) {
        if (tries == TRIES) __trap();
    }
    meet();
}

// A fence: the unit sees the writes of threads to shared memory.
__device__ __forceinline__ void publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    meet();
}

__device__ __forceinline__ void execute(Shared& s, int phase) {
    publish();
    if (threadIdx.x == 0) {
        issue<COLUMNS>(s, DESCRIPTOR);
        commit(s);
    }
    wait(s, phase);
}

__device__ __forceinline__ void copy(word* to, const word* from, int count) {
    for (int i = threadIdx.x; i < count; i += THREADS) to[i] = from[i];
}

__device__ __forceinline__ size_t place(size_t tile, int i) { return (tile * THREADS + threadIdx.x) * COLUMNS + i; }

// One instruction on each of gridDim.x tiles. Images (tiles, words) of a and b, rows (tiles, 128, 16) of c and d.
extern "C" __global__ void __launch_bounds__(THREADS)
single(const word* a, const word* b, const word* scales_a, const word* scales_b, const word* c, word* d) {
    __shared__ Shared s;
    word acc[COLUMNS];
    begin<32>(s);
    copy(s.left, a + (size_t)blockIdx.x * A_WORDS, A_WORDS);
    copy(s.right, b + (size_t)blockIdx.x * B_WORDS, B_WORDS);
    for (int i = 0; i < COLUMNS; i++) acc[i] = c[place(blockIdx.x, i)];
    put(s, acc);
    put_scales(s, scales_a, scales_b, blockIdx.x, blockIdx.x);
    execute(s, 0);
    get(s, acc);
    for (int i = 0; i < COLUMNS; i++) d[place(blockIdx.x, i)] = acc[i];
    end<32>(s);
}

// A product of matrices: see mma.cu.
extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const word* a, const word* b, const word* scales_a, const word* scales_b, const word* c, word* d, int columns, int steps, int every) {
    __shared__ Shared s;
    word acc[COLUMNS], total[COLUMNS];
    const size_t of_a = (size_t)(blockIdx.x / columns) * steps, of_b = (size_t)(blockIdx.x % columns) * steps;
    int phase = 0;
    begin<32>(s);
    for (int i = 0; i < COLUMNS; i++) total[i] = c[place(blockIdx.x, i)];
    const int part = every ? every : steps;
    for (int start = 0; start < steps; start += part) {
        for (int i = 0; i < COLUMNS; i++) acc[i] = every ? 0 : total[i];
        put(s, acc);
        for (int step = start; step < min(start + part, steps); step++, phase ^= 1) {
            copy(s.left, a + (of_a + step) * A_WORDS, A_WORDS);
            copy(s.right, b + (of_b + step) * B_WORDS, B_WORDS);
            put_scales(s, scales_a, scales_b, of_a + step, of_b + step);
            execute(s, phase);
        }
        get(s, acc);
        for (int i = 0; i < COLUMNS; i++) {
            if (every) asm volatile("add.rn.f32 %0, %0, %1;" : "+r"(total[i]) : "r"(acc[i]));
            else total[i] = acc[i];
        }
    }
    for (int i = 0; i < COLUMNS; i++) d[place(blockIdx.x, i)] = total[i];
    end<32>(s);
}

// Throughput: `steps` times CHAIN instructions from shared memory on one accumulator in tensor memory, with one wait at
// the end. Images of one tile of a and of 16 columns of b, which is copied 16 times; all scales are equal. `out` takes
// a word of each thread, so that the compiler keeps the instructions.
extern "C" __global__ void __launch_bounds__(THREADS)
rate(const word* a, const word* b, const word* scales_a, const word* scales_b, word* out, int steps, word) {
    __shared__ Shared s;
    word acc[COLUMNS];
    begin<512>(s);
    copy(s.left, a, A_WORDS);
    for (int i = threadIdx.x; i < RATE_COLUMNS / COLUMNS * B_WORDS; i += THREADS) s.right[i] = b[i % B_WORDS];
    const word at = rows(s);
    for (int column = 0; column < RATE_COLUMNS; column++) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(at + column), "r"(0) : "memory");
    }
#if SCALED
    for (int i = 0; i < 4; i++) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(at + OF_A(RATE_COLUMNS) + i), "r"(scales_a[0]) : "memory");
    }
    for (int i = 0; i < RATE_COLUMNS / 32; i++) {
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(at + OF_B(RATE_COLUMNS) + i), "r"(scales_b[0]) : "memory");
    }
#endif
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    publish();
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
#pragma unroll
            for (int i = 0; i < CHAIN; i++) issue<RATE_COLUMNS>(s, RATE_DESCRIPTOR);
        }
        commit(s);
    }
    wait(s, 0);
    get(s, acc);
    out[(size_t)blockIdx.x * THREADS + threadIdx.x] = acc[0];
    end<512>(s);
}
