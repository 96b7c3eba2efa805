package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxBits bounds integers.
const maxBits = 1 << 16

// Number returns the value of a number in JSON as Python's json reads it: an integer of any size, or a
// float.
func Number(text string) (Value, error) {
	if n, ok := parseInt(text, 10); ok {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if math.IsInf(f, 0) {
		err = nil // Python reads 1e999 as inf
	}
	return f, err
}

// intOf returns an int or bool as an int.
func intOf(v Value) (n int, ok bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func bigOf(v Value) (*big.Int, bool) {
	if n, ok := v.(*big.Int); ok {
		return n, true
	}
	n, ok := intOf(v)
	return big.NewInt(int64(n)), ok
}

func floatOf(v Value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := bigOf(v)
	f, _ := new(big.Float).SetInt(n).Float64()
	return f, ok
}

func isNumber(v Value) bool {
	_, ok := floatOf(v)
	return ok
}

// small returns an integer as an int if it fits.
func small(n *big.Int) Value {
	if n.IsInt64() {
		return int(n.Int64())
	}
	if n.BitLen() > maxBits {
		panic(errLarge)
	}
	return n
}

// arithmetic is Python's a op b for numbers.
func arithmetic(op string, a, b Value) Value {
	const limit = 1 << 31
	x, xok := intOf(a)
	y, yok := intOf(b)
	if xok && yok && -limit < x && x < limit && -limit < y && y < limit {
		switch op {
		case "+":
			return x + y
		case "-":
			return x - y
		case "*":
			return x * y
		}
	}
	p, pok := bigOf(a)
	q, qok := bigOf(b)
	if pok && qok && op != "/" && (op != "**" || q.Sign() >= 0) {
		return integers(op, p, q)
	}
	f, fok := floatOf(a)
	g, gok := floatOf(b)
	if !fok || !gok {
		panic(unusable("unsupported operands of %s: %s and %s", op, typeName(defined(a)), typeName(defined(b))))
	}
	return floats(op, f, g)
}

func integers(op string, x, y *big.Int) Value {
	z, rest := new(big.Int), new(big.Int)
	switch op {
	case "+":
		return small(z.Add(x, y))
	case "-":
		return small(z.Sub(x, y))
	case "*":
		return small(z.Mul(x, y))
	case "**":
		if x.BitLen() > 1 && (!y.IsInt64() || float64(x.BitLen())*float64(y.Int64()) > maxBits) {
			panic(errLarge)
		}
		if x.BitLen() == 1 { // the powers of 1 and -1
			y = rest.And(y, big.NewInt(1))
		}
		return small(z.Exp(x, y, nil))
	}
	sign := big.NewInt(int64(y.Sign()))
	if y.Sign() == 0 {
		panic(errDivision)
	}
	// Go's division by a positive number rounds down, as Python's does.
	z.DivMod(new(big.Int).Mul(x, sign), new(big.Int).Abs(y), rest)
	if op == "%" {
		return small(rest.Mul(rest, sign))
	}
	return small(z)
}

var (
	errDivision = unusable("a division by zero")
	errLarge    = limitError("an integer of more than %d bits", maxBits)
)

func floats(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return math.Pow(x, y)
	}
	if y == 0 {
		panic(errDivision)
	}
	rest := math.Mod(x, y)
	if rest*y < 0 {
		rest += y
	}
	switch op {
	case "/":
		return x / y
	case "%":
		return rest
	}
	return math.Round((x - rest) / y)
}

// parseInt is Python's int of a text.
func parseInt(s string, base int) (Value, bool) {
	s = strings.TrimFunc(s, isSpace)
	if n, err := strconv.Atoi(s); err == nil && base == 10 {
		return n, true
	}
	if base == 16 || base == 8 || base == 2 {
		s = strings.Replace(strings.ToLower(s), map[int]string{16: "0x", 8: "0o", 2: "0b"}[base], "", 1)
	}
	if len(s) > maxBits/4 || base < 2 || base > 36 || strings.Contains(s, "__") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(strings.ReplaceAll(s, "_", ""), base)
	if !ok {
		return nil, false
	}
	return small(n), true
}

// parseFloat is Python's float of a text.
func parseFloat(s string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64)
	return f, (err == nil || math.IsInf(f, 0)) && !strings.ContainsAny(s, "xXpP")
}

// truncated is Python's int of a float. ok is false for infinite numbers and NaN.
func truncated(f float64) (n Value, ok bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	whole, _ := big.NewFloat(math.Trunc(f)).Int(nil)
	return small(whole), true
}
