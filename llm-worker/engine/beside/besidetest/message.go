package besidetest

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Message is an encoded protobuf message, read by field numbers. A malformed field counts as
// absent.
type Message []byte

// each calls f with every value of a field.
func (m Message) each(number protowire.Number, f func(kind protowire.Type, value []byte)) {
	for b := []byte(m); len(b) > 0; {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(num, kind, b); n < 0 {
			return
		}
		if num == number {
			f(kind, b[:n])
		}
		b = b[n:]
	}
}

// Has reports whether a field is present.
func (m Message) Has(number protowire.Number) (has bool) {
	m.each(number, func(protowire.Type, []byte) { has = true })
	return has
}

// Uint returns the last value of a field as a number, 0 if there is none.
func (m Message) Uint(number protowire.Number) (v uint64) {
	m.each(number, func(kind protowire.Type, b []byte) {
		if kind == protowire.VarintType {
			v, _ = protowire.ConsumeVarint(b)
		}
	})
	return v
}

// Float returns a float.
func (m Message) Float(number protowire.Number) (v float32) {
	m.each(number, func(kind protowire.Type, b []byte) {
		if kind == protowire.Fixed32Type {
			bits, _ := protowire.ConsumeFixed32(b)
			v = math.Float32frombits(bits)
		}
	})
	return v
}

// Messages returns all values of a field that are messages or strings.
func (m Message) Messages(number protowire.Number) (all []Message) {
	m.each(number, func(kind protowire.Type, b []byte) {
		if kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			all = append(all, v)
		}
	})
	return all
}

// Message returns the last value of a field as a message.
func (m Message) Message(number protowire.Number) Message {
	if all := m.Messages(number); len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// Text returns a string.
func (m Message) Text(number protowire.Number) string { return string(m.Message(number)) }

// Uints returns a list of numbers, packed or not.
func (m Message) Uints(number protowire.Number) (all []uint32) {
	m.each(number, func(kind protowire.Type, b []byte) {
		if kind == protowire.BytesType {
			b, _ = protowire.ConsumeBytes(b)
		}
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return
			}
			all, b = append(all, uint32(v)), b[n:] //nolint:gosec // token ids
		}
	})
	return all
}

// AddUint adds a number.
func (m Message) AddUint(number protowire.Number, v uint64) Message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), v)
}

// AddFloat adds a float.
func (m Message) AddFloat(number protowire.Number, v float32) Message {
	return protowire.AppendFixed32(protowire.AppendTag(m, number, protowire.Fixed32Type), math.Float32bits(v))
}

// AddText adds a string or a message.
func (m Message) AddText(number protowire.Number, v string) Message {
	return protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), v)
}

// AddUints adds a packed list of numbers.
func (m Message) AddUints(number protowire.Number, all ...uint32) Message {
	var packed []byte
	for _, v := range all {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	return m.AddText(number, string(packed))
}

// AddFloats adds a packed list of floats.
func (m Message) AddFloats(number protowire.Number, all ...float32) Message {
	var packed []byte
	for _, v := range all {
		packed = protowire.AppendFixed32(packed, math.Float32bits(v))
	}
	return m.AddText(number, string(packed))
}

// AddLogprobs adds log-probabilities in the form of OutputLogProbs, which both services have: those of
// ids, and the tops of each.
func (m Message) AddLogprobs(number protowire.Number, ids []uint32, tops func(id uint32) (chosen Candidate, top []Candidate)) Message {
	var values []float32
	var lists []Message
	for _, id := range ids {
		chosen, top := tops(id)
		values = append(values, chosen.Logprob)
		var list Message
		for _, c := range top {
			list = list.AddFloats(1, c.Logprob).AddUints(2, c.ID)
		}
		lists = append(lists, list)
	}
	logprobs := Message(nil).AddFloats(1, values...).AddUints(2, ids...)
	for _, list := range lists {
		if len(list) > 0 {
			logprobs = logprobs.AddText(3, string(list))
		}
	}
	return m.AddText(number, string(logprobs))
}

// Loads is the answer to GetLoads, which both services have: two ranks, one of them idle.
func Loads(s *Server) Message {
	running, waiting := s.Requests()
	busy := Message(nil).AddUint(2, uint64(running)).AddUint(3, uint64(waiting)).AddUint(5, 100*uint64(running)).AddUint(6, 9000).AddUint(11, 256) //nolint:gosec // a test's
	return Message(nil).AddText(2, "1").AddUint(3, 2).AddText(4, string(busy)).AddText(4, string(Message(nil).AddUint(1, 1)))
}

// Numbers copies the fields that are present into the map, under their names.
func Numbers(m Message, into map[string]any, floats, uints map[string]int32) {
	for name, number := range floats {
		if n := protowire.Number(number); m.Has(n) {
			into[name] = m.Float(n)
		}
	}
	for name, number := range uints {
		if n := protowire.Number(number); m.Has(n) {
			into[name] = m.Uint(n)
		}
	}
}
