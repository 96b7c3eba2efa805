package hfjinja

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
)

// A space is the size of a mapping that a render may change: a namespace or a cycler. No other value
// changes, so no value can contain itself, and the size of a value stays what it was when it was made.
type space struct {
	weights map[string]int // of the attributes that are not light
	size    int            // of these
}

// light is the size of an attribute that is not counted, in bytes. A source has too few attributes
// for these to matter.
const light = 256

// set counts a new value of an attribute.
func (s *space) set(name string, weight int) error {
	if weight <= light && s.weights[name] == 0 {
		return nil
	}
	s.size += weight - s.weights[name]
	if s.weights[name] = weight; s.size > maxValue {
		return fmt.Errorf("%w: a namespace of more than %d bytes", ErrLimit, maxValue)
	}
	return nil
}

// newSpace notes that the render may change d.
func (b *budget) newSpace(d *jinja.Dict) *space {
	if b.spaces == nil {
		b.spaces = map[*jinja.Dict]*space{}
	}
	s := &space{weights: map[string]int{}}
	b.spaces[d] = s
	return s
}

// namespace is the global function namespace(name=value, ...).
func (b *budget) namespace(_ []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	v, err := b.dict(nil, kwargs)
	if err == nil {
		s := b.newSpace(v.AsDict())
		for name, attr := range kwargs {
			weight, err := b.weigh(attr)
			if err == nil {
				err = s.set(name, weight)
			}
			if err != nil {
				return jinja.Undefined(), err
			}
		}
	}
	return v, err
}

// dict is the global function dict(name=value, ...).
func (b *budget) dict(_ []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	v := jinja.NewDict()
	for name, item := range kwargs {
		v.AsDict().Set(name, item)
	}
	if err := b.make(2 * valueSize * len(kwargs)); err != nil {
		return jinja.Undefined(), err
	}
	_, err := b.weigh(v)
	return v, err
}

// cycler is the global function cycler(item, ...).
func (b *budget) cycler(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Undefined(), errors.New("cycler takes at least one item")
	}
	if _, err := b.weigh(jinja.NewList(args)); err != nil {
		return jinja.Undefined(), err
	}
	v, at := jinja.NewDict(), 0
	d := v.AsDict()
	b.newSpace(d)
	d.Set("current", args[0])
	d.Set("next", jinja.NewCallable("cycler.next", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
		item := args[at]
		at = (at + 1) % len(args)
		d.Set("current", args[at])
		return item, nil
	}))
	d.Set("reset", jinja.NewCallable("cycler.reset", func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
		at = 0
		d.Set("current", args[0])
		return jinja.None(), nil
	}))
	return v, nil
}

// stored wraps the value that is assigned to an attribute of a namespace: namespace, name, value.
func (b *budget) stored(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	var s *space
	if args[0].IsDict() {
		s = b.spaces[args[0].AsDict()]
	}
	if s == nil {
		return jinja.Undefined(), fmt.Errorf("an attribute of a %s cannot be assigned, only of a namespace", typeName(args[0]))
	}
	v := args[2]
	if v.IsDict() && b.spaces[v.AsDict()] != nil {
		return jinja.Undefined(), errors.New("a namespace that contains a namespace is not supported")
	}
	weight, err := b.weigh(v)
	if err == nil {
		err = s.set(args[1].AsString(), weight)
	}
	if err != nil {
		return jinja.Undefined(), err
	}
	return v, b.tick()
}
