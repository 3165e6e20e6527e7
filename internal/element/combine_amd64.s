#include "textflag.h"

// Loops over n bytes, a positive multiple of 64, by AVX2 and F16C. Operands of an
// instruction stand in Go's order: the last one is the result.

#define ARGS \
	MOVQ dst+0(FP), DI \
	MOVQ a+8(FP), SI \
	MOVQ b+16(FP), DX \
	MOVQ n+24(FP), CX

#define NEXT(bytes) \
	ADDQ $bytes, SI \
	ADDQ $bytes, DX \
	ADDQ $bytes, DI \
	SUBQ $bytes, CX

// EACH does an operation on elements of 32 bits.
#define EACH(operation) \
	VMOVDQU (SI), Y0 \
	VMOVDQU 32(SI), Y1 \
	VMOVDQU (DX), Y2 \
	VMOVDQU 32(DX), Y3 \
	operation(Y0, Y2) \
	operation(Y1, Y3) \
	VMOVDQU Y0, (DI) \
	VMOVDQU Y1, 32(DI) \
	NEXT(64)

// Operations leave their result in a. Y8 and Y9 are theirs.
#define PLUS(a, b) VADDPS b, a, a
#define PLUSINT(a, b) VPADDD b, a, a
#define LARGERINT(a, b) VPMAXSD b, a, a
#define SMALLERINT(a, b) VPMINSD b, a, a

// VMAXPS gives its second operand where both are zeros or one is a NaN: both ways around
// differ there in the sign of the zero, or a blend sets them right.
#define NUMBER(a, b) \
	VCMPPS    $3, a, a, Y9 \
	VBLENDVPS Y9, b, Y8, Y8 \
	VCMPPS    $3, b, b, Y9 \
	VBLENDVPS Y9, a, Y8, a

#define LARGER(a, b) \
	VMAXPS b, a, Y8 \
	VMAXPS a, b, Y9 \
	VANDPS Y9, Y8, Y8 \
	NUMBER(a, b)

#define SMALLER(a, b) \
	VMINPS b, a, Y8 \
	VMINPS a, b, Y9 \
	VORPS  Y9, Y8, Y8 \
	NUMBER(a, b)

// The factors are in Y14 and Y15.
#define FACTORS \
	VBROADCASTSS x+32(FP), Y14 \
	VBROADCASTSS y+36(FP), Y15

#define WEIGHTED(a, b) \
	VMULPS Y14, a, a \
	VMULPS Y15, b, b \
	VADDPS b, a, a

// BFLOATS has the elements at odd places in one register, below whose upper halves is
// nothing, and those at even places moved up there in another.
#define BFLOATS(operation, round) \
	VMOVDQU (SI), Y1 \
	VMOVDQU (DX), Y3 \
	VPSLLD  $16, Y1, Y0 \
	VPSLLD  $16, Y3, Y2 \
	VPAND   Y13, Y1, Y1 \
	VPAND   Y13, Y3, Y3 \
	operation(Y0, Y2) \
	operation(Y1, Y3) \
	round(Y0) \
	round(Y1) \
	VPSRLD  $16, Y0, Y0 \
	VPOR    Y1, Y0, Y0 \
	VMOVDQU Y0, (DI) \
	NEXT(32)

// CONSTANTS makes those of rounding: Y13 the upper half, Y12 one, Y11 half of the last
// place less one, Y10 what makes a NaN quiet.
#define CONSTANTS \
	VPCMPEQD Y12, Y12, Y12 \
	VPSLLD   $16, Y12, Y13 \
	VPSRLD   $17, Y12, Y11 \
	VPSRLD   $31, Y12, Y12 \
	VPSLLD   $22, Y12, Y10

// ROUND rounds to the upper half, ties to even.
#define ROUND(a) \
	VPSRLD    $16, a, Y8 \
	VPAND     Y12, Y8, Y8 \
	VPADDD    Y11, Y8, Y8 \
	VPADDD    a, Y8, Y8 \
	VCMPPS    $3, a, a, Y9 \
	VPOR      Y10, a, a \
	VBLENDVPS Y9, a, Y8, a \
	VPAND     Y13, a, a

#define EXACT(a)

#define WEIGHTEDBFLOATS(a, b) \
	VMULPS Y14, a, a \
	ROUND(a) \
	VMULPS Y15, b, b \
	ROUND(b) \
	VADDPS b, a, a

#define HALVES(operation) \
	VCVTPH2PS (SI), Y0 \
	VCVTPH2PS 16(SI), Y1 \
	VCVTPH2PS (DX), Y2 \
	VCVTPH2PS 16(DX), Y3 \
	operation(Y0, Y2) \
	operation(Y1, Y3) \
	VCVTPS2PH $0, Y0, (DI) \
	VCVTPS2PH $0, Y1, 16(DI) \
	NEXT(32)

#define ROUNDHALF(a, low) \
	VCVTPS2PH $0, a, low \
	VCVTPH2PS low, a

#define WEIGHTEDHALVES(a, b) \
	VMULPS Y14, a, a \
	ROUNDHALF(a, X8) \
	VMULPS Y15, b, b \
	ROUNDHALF(b, X9) \
	VADDPS b, a, a

// func addFloats(dst, a, b *byte, n int)
TEXT ·addFloats(SB), NOSPLIT, $0-32
	ARGS

loop:
	EACH(PLUS)
	JNZ loop
	VZEROUPPER
	RET

// func largerFloats(dst, a, b *byte, n int)
TEXT ·largerFloats(SB), NOSPLIT, $0-32
	ARGS

loop:
	EACH(LARGER)
	JNZ loop
	VZEROUPPER
	RET

// func smallerFloats(dst, a, b *byte, n int)
TEXT ·smallerFloats(SB), NOSPLIT, $0-32
	ARGS

loop:
	EACH(SMALLER)
	JNZ loop
	VZEROUPPER
	RET

// func weighFloats(dst, a, b *byte, n int, x, y float32)
TEXT ·weighFloats(SB), NOSPLIT, $0-40
	ARGS
	FACTORS

loop:
	EACH(WEIGHTED)
	JNZ loop
	VZEROUPPER
	RET

// func addInts(dst, a, b *byte, n int)
TEXT ·addInts(SB), NOSPLIT, $0-32
	ARGS

loop:
	EACH(PLUSINT)
	JNZ loop
	VZEROUPPER
	RET

// func largerInts(dst, a, b *byte, n int)
TEXT ·largerInts(SB), NOSPLIT, $0-32
	ARGS

loop:
	EACH(LARGERINT)
	JNZ loop
	VZEROUPPER
	RET

// func smallerInts(dst, a, b *byte, n int)
TEXT ·smallerInts(SB), NOSPLIT, $0-32
	ARGS

loop:
	EACH(SMALLERINT)
	JNZ loop
	VZEROUPPER
	RET

// func addBFloats(dst, a, b *byte, n int)
TEXT ·addBFloats(SB), NOSPLIT, $0-32
	ARGS
	CONSTANTS

loop:
	BFLOATS(PLUS, ROUND)
	JNZ loop
	VZEROUPPER
	RET

// func largerBFloats(dst, a, b *byte, n int)
TEXT ·largerBFloats(SB), NOSPLIT, $0-32
	ARGS
	CONSTANTS

loop:
	BFLOATS(LARGER, EXACT)
	JNZ loop
	VZEROUPPER
	RET

// func smallerBFloats(dst, a, b *byte, n int)
TEXT ·smallerBFloats(SB), NOSPLIT, $0-32
	ARGS
	CONSTANTS

loop:
	BFLOATS(SMALLER, EXACT)
	JNZ loop
	VZEROUPPER
	RET

// func weighBFloats(dst, a, b *byte, n int, x, y float32)
TEXT ·weighBFloats(SB), NOSPLIT, $0-40
	ARGS
	CONSTANTS
	FACTORS

loop:
	BFLOATS(WEIGHTEDBFLOATS, ROUND)
	JNZ loop
	VZEROUPPER
	RET

// func addHalves(dst, a, b *byte, n int)
TEXT ·addHalves(SB), NOSPLIT, $0-32
	ARGS

loop:
	HALVES(PLUS)
	JNZ loop
	VZEROUPPER
	RET

// func largerHalves(dst, a, b *byte, n int)
TEXT ·largerHalves(SB), NOSPLIT, $0-32
	ARGS

loop:
	HALVES(LARGER)
	JNZ loop
	VZEROUPPER
	RET

// func smallerHalves(dst, a, b *byte, n int)
TEXT ·smallerHalves(SB), NOSPLIT, $0-32
	ARGS

loop:
	HALVES(SMALLER)
	JNZ loop
	VZEROUPPER
	RET

// func weighHalves(dst, a, b *byte, n int, x, y float32)
TEXT ·weighHalves(SB), NOSPLIT, $0-40
	ARGS
	FACTORS

loop:
	HALVES(WEIGHTEDHALVES)
	JNZ loop
	VZEROUPPER
	RET

#define QUOTIENT(at) \
	VCVTDQ2PD   at, Y0 \
	VANDPD      Y15, Y0, Y1 \
	VORPD       Y14, Y1, Y1 \
	VADDPD      Y1, Y0, Y0 \
	VMULPD      Y13, Y0, Y0 \
	VCVTTPD2DQY Y0, X0 \
	VMOVDQU     X0, at

// func divideInts(memory *byte, n int, inverse float64)
TEXT ·divideInts(SB), NOSPLIT, $0-24
	MOVQ memory+0(FP), DI
	MOVQ n+8(FP), CX
	VBROADCASTSD inverse+16(FP), Y13
	MOVQ $0x3fe0000000000000, AX // 1/2
	MOVQ AX, X14
	VPBROADCASTQ X14, Y14
	MOVQ $0x8000000000000000, AX // the sign
	MOVQ AX, X15
	VPBROADCASTQ X15, Y15

loop:
	QUOTIENT((DI))
	QUOTIENT(16(DI))
	ADDQ $32, DI
	SUBQ $32, CX
	JNZ  loop
	VZEROUPPER
	RET
