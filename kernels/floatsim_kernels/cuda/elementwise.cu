// One instruction of the CUDA cores on every element: add, fma, sqrt, cvt, ... The kernel does not know which.
//
// Codes are bits here, whatever their type. Defined when compiled:
//   INSTRUCTION               PTX, as "add.rn.f32 %0, %1, %2;", all of it in braces if it needs registers of its own
//   RESULT OPERAND            the unsigned types of the registers, as "unsigned short"
//   TO FROM                   their letters in inline assembly: "h" 16 bits, "r" 32, "l" 64
//   STORED LOADED             the unsigned types of the codes in memory, which may be narrower

extern "C" __global__ void map(const LOADED* x, const LOADED* y, const LOADED* z, STORED* out, size_t count) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const OPERAND a = x[i], b = y ? y[i] : 0, c = z ? z[i] : 0;
    RESULT result;
    asm volatile(INSTRUCTION : "=" TO(result) : FROM(a), FROM(b), FROM(c));
    out[i] = (STORED)result;
}
