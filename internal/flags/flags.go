// Package flags adds to package flag what the help, the reference and the errors of a command need
// to know about a flag: its subject, whether its value is a secret, and whether the environment may
// set the flag. A package that declares flags states all three beside the declarations.
package flags

import "flag"

// A Subject is a heading under which the help of a command lists flags.
type Subject int

// The subjects, in the order of the help.
const (
	Other Subject = iota // a flag that has no subject yet
	Connections
	Model
	Engine
	Routing
	Limits
	Timeouts
	Access
	Kept
	Observability
	Simulator
	Configuration
)

var titles = [...]string{
	Other: "Flags", Connections: "Addresses and connections", Model: "Model", Engine: "Engine", Routing: "Routing and failover",
	Limits: "Limits", Timeouts: "Timeouts", Access: "Access", Kept: "Leaving clients and kept streams",
	Observability: "Logs, metrics, traces and usage", Simulator: "Simulator", Configuration: "Configuration",
}

// String returns the heading.
func (s Subject) String() string { return titles[s] }

// Subjects returns all subjects in the order of the help.
func Subjects() []Subject {
	all := make([]Subject, len(titles))
	for i := range all {
		all[i] = Subject(i)
	}
	return all
}

// Group assigns a subject to the named flags of fs, or to all flags without a subject if it gets no
// names.
func Group(fs *flag.FlagSet, subject Subject, names ...string) {
	if len(names) == 0 {
		fs.VisitAll(func(f *flag.Flag) {
			if SubjectOf(f) == Other {
				annotate(f).subject = subject
			}
		})
	}
	for _, name := range names {
		annotate(fs.Lookup(name)).subject = subject
	}
}

// Secret marks flags whose values no output may contain.
func Secret(fs *flag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(fs.Lookup(name)).secret = true
	}
}

// NoEnvironment marks flags that are not set from the environment, because a variable of their name
// has another meaning for a service.
func NoEnvironment(fs *flag.FlagSet, names ...string) {
	for _, name := range names {
		annotate(fs.Lookup(name)).noEnvironment = true
	}
}

// InEnvironment reports whether f can be set from the environment.
func InEnvironment(f *flag.Flag) bool {
	v, ok := f.Value.(*annotation)
	return !ok || !v.noEnvironment
}

// SubjectOf returns the subject of a flag.
func SubjectOf(f *flag.Flag) Subject {
	if v, ok := f.Value.(*annotation); ok {
		return v.subject
	}
	return Other
}

// IsSecret reports whether no output may contain the value of f.
func IsSecret(f *flag.Flag) bool {
	v, ok := f.Value.(*annotation)
	return ok && v.secret
}

// Copy adds f to fs under another name, and with another usage and value, but with the annotations
// of f.
func Copy(fs *flag.FlagSet, f *flag.Flag, name, usage string, value flag.Value) {
	if v, ok := f.Value.(*annotation); ok {
		value = &annotation{inner(value), v.subject, v.secret, v.noEnvironment}
	}
	fs.Var(value, name, usage)
}

// Unquote returns the name of the argument of f and its usage, like flag.UnquoteUsage. The name is
// "" for a flag that takes no argument.
func Unquote(f *flag.Flag) (argument, usage string) {
	plain := *f
	plain.Value = inner(f.Value)
	return flag.UnquoteUsage(&plain)
}

// An annotation is the value of a flag together with what this package adds.
type annotation struct {
	flag.Value
	subject       Subject
	secret        bool
	noEnvironment bool
}

// annotate returns the annotation of f, which it creates if necessary.
func annotate(f *flag.Flag) *annotation {
	v, ok := f.Value.(*annotation)
	if !ok {
		v = &annotation{Value: f.Value}
		f.Value = v
	}
	return v
}

// inner returns the value that was declared.
func inner(v flag.Value) flag.Value {
	if v, ok := v.(*annotation); ok {
		return v.Value
	}
	return v
}

// String implements flag.Value, also for the zero value, as package flag demands.
func (v *annotation) String() string {
	if v.Value == nil {
		return ""
	}
	return v.Value.String()
}

// Get implements flag.Getter. It returns nil if the declared value is not a Getter.
func (v *annotation) Get() any {
	if g, ok := v.Value.(flag.Getter); ok {
		return g.Get()
	}
	return nil
}

// Type implements pflag.Value, so that pflag keeps the annotation.
func (v *annotation) Type() string { return "value" }

// IsBoolFlag reports whether the flag needs no argument.
func (v *annotation) IsBoolFlag() bool {
	b, ok := v.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}
