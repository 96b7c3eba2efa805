#include "textflag.h"

// func load(runs *uintptr, n int)
TEXT ·load(SB), NOSPLIT, $0-16
	MOVD runs+0(FP), R0
	MOVD n+8(FP), R1

run:
	MOVD.P 8(R0), R2
	AND    $63, R2, R3
	BIC    $63, R2, R2

next:
	PRFM (R2), PLDL1KEEP
	ADD  $64, R2, R2
	SUBS $1, R3, R3
	BGE  next
	SUBS $1, R1, R1
	BNE  run
	RET
