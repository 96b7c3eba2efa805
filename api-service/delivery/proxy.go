package delivery

import "strings"

// own is the edge's own name in the header Server, and unnamed the name for a proxy that does not
// name itself.
const (
	own     = "whence"
	unnamed = "a proxy"
)

// signs are request headers that a particular proxy adds.
var signs = []struct{ header, name string }{
	{"CF-Ray", "Cloudflare"},
	{"X-Amz-Cf-Id", "CloudFront"},
	{"Fastly-Client-IP", "Fastly"},
	{"X-Azure-Ref", "Azure Front Door"},
	{"X-Cloud-Trace-Context", "Google's load balancer"},
	{"X-Amzn-Trace-Id", "AWS's load balancer"},
}

// hints are request headers that show that there is a proxy, but not which.
var hints = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"}

// Proxy returns the name of the proxy between the edge and the client, from the headers of the
// client's request as they arrived here, and from the headers of the response as the client saw
// them. It returns "" if no proxy is visible.
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

// pseudonym returns the name of the last proxy in a Via header: varnish for `1.1 google, 1.1
// varnish (Varnish/7.1)`.
func pseudonym(via string) string {
	last := via[strings.LastIndexByte(via, ',')+1:]
	fields := strings.Fields(clean(last))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// maxName bounds a name from a header, in bytes.
const maxName = 64

// clean returns the printable part of text, for display and logs.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text[:min(len(text), maxName)])
	return strings.TrimSpace(text)
}
