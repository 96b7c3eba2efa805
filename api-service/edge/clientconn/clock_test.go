package clientconn

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// names has the names of duties in stories.
var names = map[duty]string{rest: "rest", speak: "speak", look: "look", tooSlow: "tooSlow", cut: "cut"}

// TestStories runs the stories of testdata/stories.txt.
func TestStories(t *testing.T) {
	file, err := os.Open("testdata/stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var c clock
	var title string
	var vanished bool
	stories := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		var now time.Duration
		if words[0] == "at" {
			now, words = millis(t, words[1]), words[2:]
		}
		switch words[0] {
		case "story":
			stories++
			title, c, vanished = lines.Text(), newClock(0, 0), false
		case "bounds":
			c = newClock(millis(t, words[1]), millis(t, words[2]))
		case "open":
			c.open(millis(t, words[1]), millis(t, words[2]))
		case "write":
			c.wrote = now
			c.opened()
		case "blocked":
			c.blocked(now)
		case "settled":
			c.settled()
		case "stop":
			c.stop(now)
		case "resume":
			c.resume()
		case "end":
			c.end()
		case "close":
			c.close()
		case "looked":
			if vanished {
				t.Errorf("%s: the client has vanished before %q", title, lines.Text())
			}
			vanished = c.looked(now, words[1] == "acked", millis(t, words[2]))
		case "vanished":
			if !vanished {
				t.Errorf("%s: the client has not vanished", title)
			}
		case "due":
			want := never
			if words[1] != "never" {
				want = millis(t, words[1])
			}
			if due, at := c.next(); at != want || names[due] != words[2] {
				t.Errorf("%s: %s is due at %v, want %q", title, names[due], at, lines.Text())
			}
		default:
			t.Fatalf("%s: %q", title, lines.Text())
		}
	}
	if stories < 9 {
		t.Errorf("%d stories", stories)
	}
}

func millis(t *testing.T, word string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(word)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Millisecond
}
