#include "textflag.h"

// func load(runs *uintptr, n int)
TEXT ·load(SB), NOSPLIT, $0-16
	MOVQ runs+0(FP), SI
	MOVQ n+8(FP), CX

run:
	MOVQ (SI), AX
	MOVQ AX, DX
	ANDQ $63, DX
	ANDQ $~63, AX

next:
	PREFETCHT0 (AX)
	ADDQ       $64, AX
	DECQ       DX
	JGE        next
	ADDQ       $8, SI
	DECQ       CX
	JNZ        run
	RET
