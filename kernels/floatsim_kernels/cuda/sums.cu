// Sums by the CUDA cores, one thread for each sum. The order is that of the accumulation, and each rounding is that of
// one instruction.
//
// The terms are products a[i, k] * b[k, j] of (rows, depth) and (depth, columns) matrices, or the values b[k, j] if a
// is null. Ranges of k, (count, 3) of start, stop and step, are summed separately: results (count, rows, columns).
// Codes are unsigned integers, whatever their type. Defined by the compiler's options:
//   WORD LETTER      the unsigned type of a code, and its letter in inline assembly: "h" 16 bits, "r" 32, "l" 64
//   ADD MULTIPLY     PTX of x + y and x * y, rounded: "add.rn.f32 %0, %1, %2;"
//   FMA              PTX of x * y + z, rounded once: "fma.rn.f32 %0, %1, %2, %3;"

typedef WORD word;

__device__ __forceinline__ word add(word x, word y) {
    word result;
    asm volatile(ADD : "=" LETTER(result) : LETTER(x), LETTER(y));
    return result;
}

__device__ __forceinline__ word multiply(word x, word y) {
    word result;
    asm volatile(MULTIPLY : "=" LETTER(result) : LETTER(x), LETTER(y));
    return result;
}

__device__ __forceinline__ word fma(word x, word y, word z) {
    word result;
    asm volatile(FMA : "=" LETTER(result) : LETTER(x), LETTER(y), LETTER(z));
    return result;
}

struct Terms {
    const word *a, *b;
    long long depth, columns, row, column;

    __device__ word left(long long k) const { return a[row * depth + k]; }
    __device__ word right(long long k) const { return b[k * columns + column]; }
    __device__ word operator[](long long k) const { return a ? multiply(left(k), right(k)) : right(k); }
};

// The sum of a thread; false if it has none. Threads are counted over ranges, rows and columns.
__device__ bool place(long long& sum, int& range, Terms& terms, int count, long long rows) {
    const long long cells = rows * terms.columns;
    sum = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    range = (int)(sum / cells);
    terms.row = sum % cells / terms.columns;
    terms.column = sum % terms.columns;
    return range < count;
}

// acc = +0, or the value in `out`; k ascending: acc = acc + a * b, rounded twice, or once if `fused`.
extern "C" __global__ void sequential(const word* a, const word* b, const long long* ranges, word* out, int count,
                                      long long rows, long long depth, long long columns, int fused) {
    long long sum;
    int range;
    Terms terms = {a, b, depth, columns, 0, 0};
    if (!place(sum, range, terms, count, rows)) return;
    const long long* r = ranges + 3 * range;
    word acc = out[sum];
#pragma unroll 1
    for (long long k = r[0]; k < r[1]; k += r[2]) {
        acc = fused && a ? fma(terms.left(k), terms.right(k), acc) : add(acc, terms[k]);
    }
    out[sum] = acc;
}

// A tree of additions as a program for a stack: step n pushes the term order[n] of its range, and then adds the upper
// two values merges[n] times. The fourth column of `ranges` is the start of the range's program.
extern "C" __global__ void tree(const word* a, const word* b, const long long* ranges, word* out, int count,
                                long long rows, long long depth, long long columns, const int* order, const char* merges) {
    long long sum;
    int range, top = 0;
    word stack[64];
    Terms terms = {a, b, depth, columns, 0, 0};
    if (!place(sum, range, terms, count, rows)) return;
    const long long* r = ranges + 4 * range;
    const long long length = r[1] > r[0] ? (r[1] - r[0] + r[2] - 1) / r[2] : 0;
    stack[0] = 0;
#pragma unroll 1
    for (long long n = 0; n < length; n++) {
        stack[top++] = terms[r[0] + order[r[3] + n] * r[2]];
#pragma unroll 1
        for (int left = merges[r[3] + n]; left > 0; left--, top--) stack[top - 2] = add(stack[top - 2], stack[top - 1]);
    }
    out[sum] = stack[0];
}
