// Package command has the commands of users and operators: bench, doctor, keys, models, run, stop,
// streams, top and why. Each is a function that returns a cobra.Command, in the file of its name.
//
// The commands call a service over HTTP alone (remote), print to a screen, and share no state. A
// command prints its result to standard output and everything else to standard error; cli.ExitError
// is its exit status. Text of a service cannot control the terminal (internal/printable).
//
// The commands that start a service are beside the services: api-service/command and so on.
package command
