// Command victim posts a request and copies the answer to its output, until it is killed.
//
//	victim URL ID BODY
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("victim needs a URL, an id and a body, not %d arguments", len(args))
	}
	req, err := http.NewRequest(http.MethodPost, args[0], strings.NewReader(args[2]))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", args[1])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
