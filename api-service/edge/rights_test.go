package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const running = "start m say one wait 1m end x"

// keyFile writes a key file, and makes an edge use it.
func keyFile(t *testing.T, text string) func(*edge.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *edge.Config) { c.Keys = path }
}

// twoTenants is a key file with two tenants, the first with two keys.
const twoTenants = "keys: [{key: me, tenant: mine}, {key: me-too, tenant: mine}, {key: you, tenant: yours}]"

// bearer returns the header of a key; an empty key sends no header.
func bearer(key string) []string {
	if key == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + key}
}

// wantStatus sends a request with a key, and checks the status.
func wantStatus(t *testing.T, method, url, body, key string, want int) {
	t.Helper()
	resp := ask(t, method, url, body, bearer(key)...)
	if body := whole(t, resp); resp.StatusCode != want {
		t.Errorf("%q asks for %s %s: %d, want %d: %s", key, method, url, resp.StatusCode, want, body)
	}
}

// wantListed checks whether a stream is in a caller's list.
func wantListed(t *testing.T, key, list, id string, want bool) {
	t.Helper()
	if strings.Contains(list, id) != want {
		t.Errorf("the list of %q has %s: %t, want %t: %s", key, id, !want, want, list)
	}
}

// TestStreamsBelongToTheirOwners checks which streams each caller may list, see, stop and read, in every mode of an
// edge.
func TestStreamsBelongToTheirOwners(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	operated := func(c *edge.Config) { c.OperatorKey = "op" }
	type rights struct{ list, workers, own, anybodys, read int }
	for _, mode := range []struct {
		name   string
		change func(*edge.Config)
		makers [2]string // make two streams, the second without credentials where that is possible
		want   map[string]rights
	}{
		{"on loopback", nil, [2]string{"me", ""}, map[string]rights{
			"": {200, 200, 200, 200, 404}, "you": {200, 200, 200, 200, 404}, "me": {200, 200, 200, 200, 200},
		}},
		{"elsewhere", func(c *edge.Config) { c.TrustForwarded = true }, [2]string{"me", ""}, map[string]rights{
			"": {200, 200, 404, 200, 404}, "you": {200, 200, 404, 200, 404}, "me": {200, 200, 200, 200, 200},
		}},
		{"with an operator's key", operated, [2]string{"me", ""}, map[string]rights{
			"": {401, 401, 404, 200, 404}, "you": {200, 403, 404, 200, 404}, "op": {200, 200, 200, 200, 403}, "me": {200, 403, 200, 200, 200},
		}},
		{"with a key file", keyed, [2]string{"me", "you"}, map[string]rights{
			"": {401, 401, 401, 401, 401}, "you": {200, 403, 404, 200, 404}, "me-too": {200, 403, 200, 404, 200}, "op": {401, 401, 401, 401, 401}, "me": {200, 403, 200, 404, 200},
		}},
		{"with both", func(c *edge.Config) { keyed(c); operated(c) }, [2]string{"me", "you"}, map[string]rights{
			"": {401, 401, 401, 401, 401}, "you": {200, 403, 404, 200, 404}, "me-too": {200, 403, 200, 404, 200}, "op": {200, 200, 200, 200, 403}, "me": {200, 403, 200, 404, 200},
		}},
	} {
		t.Run(mode.name, func(t *testing.T) {
			url, _ := start(t, mode.change)
			kept := makeStream(t, url, running, append(bearer(mode.makers[0]), "X-Leave", "detach")...)
			anybodys := makeStream(t, url, running, append(bearer(mode.makers[1]), "X-Leave", "detach")...)
			plain := plainStream(t, url, bearer(mode.makers[0])...)
			open := mode.change == nil || mode.want[""].list == 200 // lists are complete
			for caller, want := range mode.want {
				for path, want := range map[string]int{
					"/v1/streams": want.list, "/v1/streams?state=ended": want.list, "/v1/workers": want.workers,
					"/v1/streams/" + kept.ID: want.own, "/v1/streams/" + plain: want.own, "/v1/streams/" + anybodys.ID: want.anybodys,
				} {
					wantStatus(t, http.MethodGet, url+path, "", caller, want)
				}
				if want.list == 200 {
					body := whole(t, ask(t, http.MethodGet, url+"/v1/streams", "", bearer(caller)...))
					wantListed(t, caller, body, kept.ID, open || want.own == 200)
					wantListed(t, caller, body, plain, open || want.own == 200)
					// Streams that were created without credentials are only in an operator's list.
					wantListed(t, caller, body, anybodys.ID, open || want.anybodys == 200 && (mode.makers[1] != "" || caller == "op"))
				}
				// A reader of a running stream gets no complete answer; the status is enough.
				resp := ask(t, http.MethodGet, url+kept.Events, "", bearer(caller)...)
				if _ = resp.Body.Close(); resp.StatusCode != want.read {
					t.Errorf("%q reads: %d, want %d", caller, resp.StatusCode, want.read)
				}
			}
			for caller, want := range mode.want {
				for _, id := range []string{kept.ID, plain} {
					if want.own != 200 {
						wantStatus(t, http.MethodDelete, url+"/v1/streams/"+id, "", caller, want.own)
						wantStatus(t, http.MethodPost, url+"/abort_request", `{"rid":"`+id+`"}`, caller, want.own)
					}
				}
			}
			for _, id := range []string{kept.ID, plain} {
				wantStatus(t, http.MethodDelete, url+"/v1/streams/"+id, "", "me", http.StatusAccepted)
			}
		})
	}
}

// TestStreamsOfOtherOwnersLookUnknown checks that a request for another owner's stream reveals
// nothing, on the instance that runs the stream and on another instance.
func TestStreamsOfOtherOwnersLookUnknown(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	for name, change := range map[string]func(*edge.Config){
		"keys":          keyed,
		"operator":      func(c *edge.Config) { c.OperatorKey = "op" },
		"through proxy": func(c *edge.Config) { c.TrustForwarded = true },
	} {
		t.Run(name, func(t *testing.T) {
			var chat string
			url, _ := start(t, func(c *edge.Config) { change(c); chat = c.Chat })
			other, _ := start(t, func(c *edge.Config) { change(c); c.Chat = chat })
			kept := makeStream(t, url, running, bearer("me")...)
			over := makeStream(t, url, "start m end x", bearer("me")...)
			_, _ = events(t, ask(t, http.MethodGet, url+over.Events, "", bearer("me")...))
			plain := plainStream(t, url, bearer("me")...)
			callers := []string{"you", ""}
			for _, at := range []string{url, other} {
				for _, r := range [][3]string{
					{http.MethodGet, "/v1/streams/ID", ""}, {http.MethodDelete, "/v1/streams/ID", ""}, {http.MethodPost, "/abort_request", `{"rid":"ID"}`},
					{http.MethodGet, "/v1/streams/ID/events", ""}, {http.MethodGet, "/v1/streams/ID/events?token=AAAA", ""},
					{http.MethodPost, "/v1/streams/ID/token", ""}, {http.MethodPost, "/v1/streams/ID/seen", `{"gaps":[1,0,0,0,0,0,0,0,0,0]}`},
				} {
					for _, caller := range callers {
						say := func(id string) string {
							resp := ask(t, r[0], at+strings.Replace(r[1], "ID", id, 1), strings.Replace(r[2], "ID", id, 1), bearer(caller)...)
							body := whole(t, resp)
							resp.Header.Del("Date")
							if resp.Header.Get("X-Request-Id") != id { // the response has a new id otherwise
								resp.Header.Del("X-Request-Id")
							}
							return strings.ReplaceAll(fmt.Sprint(resp.StatusCode, resp.Header, body), id, "ID")
						}
						none := say("str-aaaaaaaaaaaaaaaaaaaaaaaaaa")
						for _, id := range []string{kept.ID, over.ID, plain} {
							if got := say(id); got != none {
								t.Errorf("%q, %s %s: a stream of another owner is answered with %s, no stream with %s", caller, r[0], r[1], got, none)
							}
						}
					}
				}
			}
		})
	}
}

// TestTenantsOwnTheirStreams checks that all keys of a tenant are one owner, whatever the spelling
// of the header, and that they share idempotency keys.
func TestTenantsOwnTheirStreams(t *testing.T) {
	url, _ := start(t, keyFile(t, twoTenants))
	m := makeStream(t, url, running, append(bearer("me"), "Idempotency-Key", "k")...)
	for header, want := range map[string]int{"bearer me": 200, "BEARER \t me ": 200, "Bearer me-too": 200, "Bearer you": 404, "Bearer ME": 401, "me": 401} {
		resp := ask(t, http.MethodGet, url+"/v1/streams/"+m.ID, "", "Authorization", header)
		if body := whole(t, resp); resp.StatusCode != want {
			t.Errorf("%q: %d, want %d: %s", header, resp.StatusCode, want, body)
		}
	}
	for key, want := range map[string]int{"me-too": 200, "you": 201} {
		resp := ask(t, http.MethodPost, url+"/v1/streams", asking(running), append(bearer(key), "Idempotency-Key", "k")...)
		if body := whole(t, resp); resp.StatusCode != want || strings.Contains(body, m.ID) != (want == 200) {
			t.Errorf("the same request by %s: %d, want %d: %s", key, resp.StatusCode, want, body)
		}
	}
}

// TestCredentialsAreComparedInOneForm covers edges without a key file.
func TestCredentialsAreComparedInOneForm(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.TrustForwarded = true })
	m := makeStream(t, url, running, bearer("Me")...)
	for header, want := range map[string]int{"bearer  Me": 200, "Bearer\tMe": 200, "Bearer me": 404, "Basic Me": 404, "": 404} {
		resp := ask(t, http.MethodGet, url+"/v1/streams/"+m.ID, "", "Authorization", header)
		if body := whole(t, resp); resp.StatusCode != want {
			t.Errorf("%q: %d, want %d: %s", header, resp.StatusCode, want, body)
		}
	}
}

// plainStream begins a stream that only its own request reads, and returns its id.
func plainStream(t *testing.T, url string, headers ...string) string {
	t.Helper()
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking(running), "{", `{"stream":true,`, 1), headers...)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, err)
	}
	return resp.Header.Get("X-Request-Id")
}

// TestOwnersStopAtAnyInstance checks that an instance without the stream asks the hops below with
// the caller's owner, and stops no other stream.
func TestOwnersStopAtAnyInstance(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	var chat string
	url, _ := start(t, func(c *edge.Config) { keyed(c); chat = c.Chat })
	other, _ := start(t, func(c *edge.Config) { keyed(c); c.Chat = chat })
	id := plainStream(t, url, bearer("me")...)
	for _, caller := range []struct {
		key  string
		want int
	}{{"you", 404}, {"me-too", 202}} {
		resp := ask(t, http.MethodDelete, other+"/v1/streams/"+id, "", bearer(caller.key)...)
		if body := whole(t, resp); resp.StatusCode != caller.want {
			t.Errorf("%s stops it: %d %s", caller.key, resp.StatusCode, body)
		}
	}
}

// TestReusedIDGivesNoRights checks that using the id of another owner's stream at another instance
// gives no right to that stream, but a stream of one's own under another id. With a key file, the ids of
// two tenants differ: see TestStrangersUseOfAGeneratedIDHidesNothing.
func TestReusedIDGivesNoRights(t *testing.T) {
	change := func(c *edge.Config) { c.OperatorKey = "op" }
	var chat string
	url, _ := start(t, func(c *edge.Config) { change(c); chat = c.Chat })
	other, _ := start(t, func(c *edge.Config) { change(c); c.Chat = chat })
	id := plainStream(t, url, bearer("me")...)
	yours := plainStream(t, other, append(bearer("you"), "X-Request-Id", id)...)
	if yours == id {
		t.Fatal("two streams have the id", id)
	}
	for _, at := range []struct {
		url, id, key, state string
		hops                int
	}{{other, id, "you", "", 0}, {other, yours, "you", "live", 2}, {other, yours, "me", "", 0}, {other, id, "me", "live", 1}, {url, id, "me", "live", 2}} {
		resp := ask(t, http.MethodGet, at.url+"/v1/streams/"+at.id, "", bearer(at.key)...)
		body := whole(t, resp)
		var got streamstory.Story
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.State != at.state || len(got.Hops) != at.hops {
			t.Errorf("the story of %s for %s: %d %s, %v; want %d hops, %s", at.id, at.key, resp.StatusCode, body, err, at.hops, at.state)
		}
	}
	wantStatus(t, http.MethodDelete, other+"/v1/streams/"+id, "", "you", http.StatusNotFound)
	wantStatus(t, http.MethodDelete, other+"/v1/streams/"+id, "", "me", http.StatusAccepted)
	polltest.Eventually(t, "only the first stream ends", func() bool { return len(listed(t, url, "me")) == 0 })
	if got := listed(t, other, "you"); !slices.Equal(got, []string{yours}) {
		t.Errorf("the list of the other owner has %q", got)
	}
}

// TestOperatorsStopIsRecordedAsOperatorStop covers the instance that runs the stream, and another
// instance.
func TestOperatorsStopIsRecordedAsOperatorStop(t *testing.T) {
	var chat string
	operated := keyFile(t, twoTenants)
	url, service := start(t, func(c *edge.Config) { operated(c); c.OperatorKey, chat = "op", c.Chat })
	other, _ := start(t, func(c *edge.Config) { operated(c); c.OperatorKey, c.Chat, c.Name = "op", chat, "api-service/1" })
	for at, want := range map[string]string{url: "operator > api-service", other: "operator > api-service/1 > chat-service"} {
		id := plainStream(t, url, bearer("me")...)
		resp := ask(t, http.MethodDelete, at+"/v1/streams/"+id, "", bearer("op")...)
		if body := whole(t, resp); resp.StatusCode != http.StatusAccepted {
			t.Fatal(resp.StatusCode, body)
		}
		if cause := streamerr.As(<-service.causes); cause.Reason != streamerr.OperatorStop || !strings.HasPrefix(want, cause.Path.String()) {
			t.Errorf("the chat-service got the stop %v along %v; want operator_stop along %s", cause, cause.Path, want)
		}
	}
}

// TestReadTokenIsForOneStreamOfItsID: a refused request gets no token, and a token is not valid for
// a later stream of the same id.
func TestReadTokenIsForOneStreamOfItsID(t *testing.T) {
	t.Parallel()
	keyed := keyFile(t, twoTenants)
	url, _ := start(t, func(c *edge.Config) { keyed(c); c.Replay.TTL = 2 * time.Second })
	post := func(key, id, script string, streamed bool) (*http.Response, string) {
		body := asking(script)
		if streamed {
			body = strings.Replace(body, "{", `{"stream":true,`, 1)
		}
		resp := ask(t, http.MethodPost, url+"/v1/chat/completions", body, append(bearer(key), "X-Request-Id", id, "X-Leave", "detach")...)
		return resp, whole(t, resp)
	}
	for _, streamed := range []bool{true, false} {
		id := fmt.Sprint("chosen-", streamed)
		resp, body := post("you", id, "fail not_found", streamed)
		if resp.StatusCode != http.StatusNotFound || resp.Header.Get("X-Read-Token") != "" {
			t.Errorf("a refused stream (stream %t): %d %v %s", streamed, resp.StatusCode, resp.Header, body)
		}
		for resp.StatusCode != http.StatusOK { // the refused stream frees its id a moment after its client got the refusal
			resp, _ = post("you", id, "start m say mine end x", streamed)
		}
		events := url + "/v1/streams/" + resp.Header.Get("X-Request-Id") + "/events"
		read := func(token string) int {
			resp := ask(t, http.MethodGet, events+"?token="+token, "")
			_ = whole(t, resp)
			return resp.StatusCode
		}
		token := resp.Header.Get("X-Read-Token")
		if status := read(token); token == "" || status != http.StatusOK {
			t.Fatalf("the token %q of a stream (stream %t) reads it: %d", token, streamed, status)
		}
		polltest.Eventually(t, "the log forgets the stream after its TTL", func() bool { return read(token) == http.StatusGone })
		if resp, body := post("you", id, "start m say secret end x", streamed); resp.StatusCode != http.StatusOK || read(resp.Header.Get("X-Read-Token")) != http.StatusOK {
			t.Fatal(resp.StatusCode, body)
		}
		if status := read(token); status != http.StatusNotFound && status != http.StatusGone {
			t.Errorf("the token of an earlier stream of the same id reads the later one: %d", status)
		}
	}
}

// TestTokenMayExpireUnderItsReader: the reader continues to read. A reader that reconnects needs a
// new token, and to get it the owner's key.
func TestTokenMayExpireUnderItsReader(t *testing.T) {
	t.Parallel()
	url, chat := start(t, func(c *edge.Config) { c.TokenTTL = time.Second })
	m := makeStream(t, url, "start m say x hold x say y end x", "Authorization", "Bearer me")
	resp := ask(t, http.MethodGet, url+m.Events+"?token="+m.Token, "")
	later := makeStream(t, url, "start m end x", "Authorization", "Bearer me")
	polltest.Eventually(t, "the token of a later stream expires", func() bool {
		resp := ask(t, http.MethodGet, url+later.Events+"?token="+later.Token, "")
		_ = whole(t, resp)
		return resp.StatusCode == http.StatusUnauthorized
	})
	close(chat.release)
	if all, text := events(t, resp); text != "xy" || all[len(all)-1].name != "ending" {
		t.Errorf("the reader has %q and %+v", text, all)
	}
	resp = ask(t, http.MethodGet, url+m.Events+"?token="+m.Token, "")
	if body := whole(t, resp); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "expired") {
		t.Errorf("with the expired token: %d %s", resp.StatusCode, body)
	}
	for who, want := range map[string]int{"": 404, "Bearer you": 404, "Bearer me": 201} {
		resp := ask(t, http.MethodPost, url+"/v1/streams/"+m.ID+"/token?token="+m.Token, "", "Authorization", who)
		body := whole(t, resp)
		if resp.StatusCode != want {
			t.Errorf("%q asks for a new token: %d %s", who, resp.StatusCode, body)
		}
		if want != 201 {
			continue
		}
		var again keptStream
		if err := json.Unmarshal([]byte(body), &again); err != nil || again.ID != m.ID || again.Events != m.Events {
			t.Fatal(body, err)
		}
		resp = ask(t, http.MethodGet, url+m.Events+"?token="+again.Token, "")
		if whole(t, resp); resp.StatusCode != http.StatusOK {
			t.Errorf("with the new token: %d", resp.StatusCode)
		}
	}
	resp = ask(t, http.MethodPost, url+"/v1/streams/str-nobody/token", "")
	if whole(t, resp); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.StatusCode)
	}
}

// TestReaderOfAnEarlierStreamDoesNotKeepALaterOne: a kept stream is read while a plain stream of
// its owner runs under the same id. The plain stream ends when its own reader leaves.
func TestReaderOfAnEarlierStreamDoesNotKeepALaterOne(t *testing.T) {
	url, chat := start(t, keyFile(t, twoTenants))
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions", asking("start m say x end x"), append(bearer("you"), "X-Request-Id", "chosen", "X-Leave", "detach")...)
	if body := whole(t, resp); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, body)
	}
	resp = ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking(running), "{", `{"stream":true,`, 1), append(bearer("you"), "X-Request-Id", "chosen")...)
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, err)
	}
	if all, text := events(t, ask(t, http.MethodGet, url+"/v1/streams/chosen/events", "", bearer("you")...)); text != "x" {
		t.Error(text, all)
	}
	_ = resp.Body.Close()
	if cause := polltest.Receive(t, "the stream ends with its reader", chat.causes); streamerr.As(cause).Reason != streamerr.ClientGone {
		t.Error(cause)
	}
}
