package schema

import (
	"math/rand/v2"
	"net"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/llm-worker/guide/grammar"
)

func TestFormatsAreExactWithinTheirLimits(t *testing.T) {
	for name, texts := range map[string]struct{ good, bad string }{
		"date":                  {"2024-02-29 2000-02-29 1900-02-28 0001-01-01 9999-12-31 2023-04-30", "2023-02-29 1900-02-29 0000-01-01 2023-04-31 2023-13-01 2023-00-10 2023-1-1 23-01-01 2023-01-01T"},
		"time":                  {"00:00:00Z 23:59:59.123456+14:00 12:00:00-00:30", "24:00:00Z 12:60:00Z 12:00:60Z 12:00Z 12:00:00 12:00:00z 12:00:00.Z"},
		"date-time":             {"2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z 2024-02-29 12:00:00Z 2024-02-29t12:00:00Z"},
		"duration":              {"P1Y P1Y2M3DT4H5M6S PT5M P3W P2DT1S", "P PT 1Y P1S P1Y1D P1W1D PT1H1S"},
		"uuid":                  {"123e4567-E89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400 123e4567e89b12d3a456426614174000 g23e4567-e89b-12d3-a456-426614174000"},
		"ipv4":                  {"0.0.0.0 255.255.255.255 192.168.1.9", "256.1.1.1 1.1.1 01.1.1.1 1.1.1.1.1"},
		"ipv6":                  {":: ::1 1:: 2001:db8::ff00:42:8329 1:2:3:4:5:6:7:8 1:2:3:4:5:6::8 ::2:3:4:5:6:7:8", "1::2::3 1:2:3:4:5:6:7 12345::1 :1 1:2:3:4:5:6:7:8:9 ::1%eth0"},
		"email":                 {"a@b.co ann.lee+x@mail.example.org", "a@b a.@b.co .a@b.co @b.co a@-b.co a@b..co"},
		"uri":                   {"https://a.example:8080/b/c%20d?x=1&y=/#f urn:isbn:0451450523 mailto:a@b.example file:///etc/hosts a:/", "a /a //h a:b%2 a:[ 1a:b https://a:x/ a:b#c#d"},
		"uri-reference":         {"https://a.example/ /a/b ../c?d a//b //h/x ?q #f ./a:b", "a%zz a:b%2 #a#b [x]"},
		"json-pointer":          {"/a/b~1c/~0/0/é /", "a /~ /~2 a/b"},
		"relative-json-pointer": {"0 1/a 10# 0/~1", "01 -1 /a 1##"},
		"regex":                 {"^a+[bc]*\\\\d?$ .* a", "( [ a** a{ \\\\q"},
		"hostname":              {"localhost a.b-c.example.org 1.x", "-a a- a..b a_b .a"},
	} {
		one, err := NewCompiler().Compile(`{"format":"` + name + `"}`)
		if err != nil {
			t.Fatal(name, err)
		}
		if one := regexp.MustCompile(formatNamed(name).Expression); !one.MatchString("") {
			texts.bad += " "
		}
		r := newReader(grammar.Measure(one))
		for _, text := range strings.Split(texts.good, " ") {
			if !r.accepts(`"` + text + `"`) {
				t.Errorf("%s refuses %q", name, text)
			}
		}
		for _, text := range strings.Split(texts.bad, " ") {
			if r.accepts(`"` + text + `"`) {
				t.Errorf("%s accepts %q", name, text)
			}
		}
	}
}

// TestDatesExist compares all dates of some years, real and not, with the calendar.
func TestDatesExist(t *testing.T) {
	date := regexp.MustCompile(formatNamed("date").Expression)
	for _, year := range []string{"0000", "0004", "0100", "0400", "1900", "2000", "2023", "2024", "2100", "9996", "9999"} {
		for month := range 14 {
			for day := range 33 {
				text := year + "-" + string([]byte{byte('0' + month/10), byte('0' + month%10), '-', byte('0' + day/10), byte('0' + day%10)})
				_, err := time.Parse(time.DateOnly, text)
				if want := err == nil && year != "0000"; date.MatchString(text) != want {
					t.Errorf("%s is a date: %v", text, !want)
				}
			}
		}
	}
}

// TestAddressesAreReadByTheLibrary draws addresses, which Go's readers must take.
func TestAddressesAreReadByTheLibrary(t *testing.T) {
	for name, read := range map[string]func(string) bool{
		"ipv4":  func(text string) bool { return net.ParseIP(text).To4() != nil },
		"ipv6":  func(text string) bool { return net.ParseIP(text) != nil },
		"email": func(text string) bool { _, err := mail.ParseAddress(text); return err == nil },
	} {
		one, err := NewCompiler().Compile(`{"format":"` + name + `"}`)
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 7))
		for range tier.Of(50, 300) {
			text := newReader(grammar.Measure(one)).draw(random)
			if !read(text[1 : len(text)-1]) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}
