package hub

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listenerDirectory returns the working directory of the process that listens on a TCP port of this machine. It
// returns "" if there is none, or if the process belongs to another user.
func listenerDirectory(port int) string {
	sockets := listeners(port)
	if len(sockets) == 0 {
		return ""
	}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, process := range processes {
		files, err := os.ReadDir(filepath.Join(process, "fd"))
		if err != nil {
			continue // it has ended, or belongs to another user
		}
		for _, file := range files {
			if open, err := os.Readlink(filepath.Join(process, "fd", file.Name())); err != nil || !sockets[open] {
				continue
			}
			if dir, err := os.Readlink(filepath.Join(process, "cwd")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// listeners returns the sockets that listen on a TCP port, by the names of their open files.
func listeners(port int) map[string]bool {
	const (
		local, state, inode = 1, 3, 9 // columns
		listens             = "0A"
	)
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, _ := os.ReadFile(table) // a machine may have no IPv6
		for line := range strings.Lines(string(text)) {
			columns := strings.Fields(line)
			if len(columns) <= inode || columns[state] != listens {
				continue
			}
			_, digits, _ := strings.Cut(columns[local], ":")
			if n, err := strconv.ParseUint(digits, 16, 16); err == nil && int(n) == port {
				sockets["socket:["+columns[inode]+"]"] = true
			}
		}
	}
	return sockets
}
