package delivery

import "strings"

// own is the edge's name in the header Server, and unnamed a proxy that does not say its own.
const (
	own     = "whence"
	unnamed = "a proxy"
)

// signs are request headers that proxies add; some say whose.
var signs = []struct{ header, name string }{
	{"CF-Ray", "Cloudflare"},
	{"X-Amz-Cf-Id", "CloudFront"},
	{"Fastly-Client-IP", "Fastly"},
	{"X-Azure-Ref", "Azure Front Door"},
	{"X-Cloud-Trace-Context", "Google's load balancer"},
	{"X-Amzn-Trace-Id", "AWS's load balancer"},
}

// hints are those that say only that there is one.
var hints = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"}

// Proxy names who stands between edge and client, by the headers of the client's request as they came here, and those of the
// response as the client saw them; "" is nobody who can be seen.
func Proxy(request func(header string) string, r Report) string {
	if server := clean(r.Server); server != "" && server != own {
		return server
	}
	for _, via := range []string{r.Via, request("Via")} {
		if name := pseudonym(via); name != "" {
			return name
		}
	}
	for _, sign := range signs {
		if request(sign.header) != "" {
			return sign.name
		}
	}
	for _, hint := range hints {
		if request(hint) != "" {
			return unnamed
		}
	}
	return ""
}

// pseudonym is who the last proxy of a Via says it is: of `1.1 google, 1.1 varnish (Varnish/7.1)`, varnish.
func pseudonym(via string) string {
	last := via[strings.LastIndexByte(via, ',')+1:]
	fields := strings.Fields(clean(last))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// maxName bounds a name that a header gives, in bytes.
const maxName = 64

// clean returns text as it can be shown and logged.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), maxName)])
	return strings.TrimSpace(text)
}
