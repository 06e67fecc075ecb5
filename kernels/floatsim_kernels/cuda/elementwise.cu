// Elementwise instructions of the CUDA cores (add, fma, sqrt, cvt, ...), one kernel for each.
//
// Codes are unsigned integers, whatever their type. Defined by the compiler's options: ROWS, the list of kernels, as
//   ROW(name, "add.rn.f32 %0, %1, %2;", result, operand, "r", "r", stored, loaded) ROW(...) ...
// with the PTX (%0 is the result, %1 to %3 are the operands), the unsigned types of the registers of the result and of
// the operands, their letters in inline assembly ("h" 16 bits, "r" 32, "l" 64), and the unsigned types of the codes in
// memory, which may be narrower. Missing operands are null pointers and read as zeros.

#define ROW(name, instruction, result, operand, to, from, stored, loaded)                                              \
    extern "C" __global__ void name(const loaded* x, const loaded* y, const loaded* z, stored* out, size_t count) {    \
        const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;                                                \
        if (i >= count) return;                                                                                        \
        const operand a = x[i], b = y ? y[i] : 0, c = z ? z[i] : 0;                                                    \
        result r;                                                                                                      \
        asm volatile(instruction : "=" to(r) : from(a), from(b), from(c));                                             \
        out[i] = (stored)r;                                                                                            \
    }

ROWS
