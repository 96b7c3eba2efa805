package edge_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
)

const running = "start m say one wait 1m end x"

// TestStreamsBelongToWhoMadeThem: what each may do, with and without an operator's key, on loopback and where others reach it.
func TestStreamsBelongToWhoMadeThem(t *testing.T) {
	const owner, stranger, operator = "Bearer me", "Bearer you", "Bearer op"
	for name, c := range map[string]struct {
		change func(*edge.Config)
		// Statuses for nobody, a stranger, the operator's key and the owner, in this order.
		lists, own, anybodys [4]int
	}{
		"on loopback": {nil, [4]int{200, 200, 200, 200}, [4]int{200, 200, 200, 200}, [4]int{200, 200, 200, 200}},
		"elsewhere": {func(c *edge.Config) { c.TrustForwarded = true },
			[4]int{200, 200, 200, 200}, [4]int{401, 403, 403, 200}, [4]int{200, 200, 200, 200}},
		"with an operator": {func(c *edge.Config) { c.OperatorKey = "op" },
			[4]int{401, 403, 200, 403}, [4]int{401, 403, 200, 200}, [4]int{200, 200, 200, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := start(t, c.change)
			kept := makeStream(t, url, running, "Authorization", owner)
			anybodys := makeStream(t, url, running)
			plain := plainStream(t, url, "Authorization", owner)
			for i, who := range []string{"", stranger, operator, owner} {
				var auth []string
				if who != "" {
					auth = []string{"Authorization", who}
				}
				status := func(method, path string) int {
					resp := ask(t, method, url+path, "", auth...)
					whole(t, resp)
					return resp.StatusCode
				}
				for path, want := range map[string]int{
					"/v1/streams": c.lists[i], "/v1/streams?state=ended": c.lists[i], "/v1/workers": c.lists[i],
					"/v1/streams/" + kept.ID: c.own[i], "/v1/streams/" + plain: c.own[i], "/v1/streams/" + anybodys.ID: c.anybodys[i],
				} {
					if got := status(http.MethodGet, path); got != want {
						t.Errorf("%q asks for %s: %d, want %d", who, path, got, want)
					}
				}
			}
			for i, who := range []string{"", stranger, operator, owner} { // the last may always
				for id, want := range map[string]int{kept.ID: c.own[i], plain: c.own[i], anybodys.ID: c.anybodys[i]} {
					resp := ask(t, http.MethodPost, url+"/abort_request", `{"rid":"`+id+`"}`, "Authorization", who)
					if whole(t, resp); want != 200 && resp.StatusCode != want || want == 200 && refused(resp) {
						t.Errorf("%q aborts: %d, want %d", who, resp.StatusCode, want)
					}
				}
			}
			resp := ask(t, http.MethodGet, url+kept.Events, "", "Authorization", operator)
			if whole(t, resp); resp.StatusCode != http.StatusForbidden {
				t.Errorf("the operator's key reads what a stream says: %d", resp.StatusCode)
			}
		})
	}
}

// refused reports whether somebody may not. Who may can find no such stream any more, or a chat-service that stops none.
func refused(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
}

// plainStream begins a stream that is read by the request that made it, and returns its id.
func plainStream(t *testing.T, url string, headers ...string) string {
	t.Helper()
	resp := ask(t, http.MethodPost, url+"/v1/chat/completions", strings.Replace(asking(running), "{", `{"stream":true,`, 1), headers...)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, err)
	}
	return resp.Header.Get("X-Request-Id")
}

// TestWhoIsUnknownToAnInstanceIsTheOperatorsAffair: a stream of another instance, without a log that they share.
func TestWhoIsUnknownToAnInstanceIsTheOperatorsAffair(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.OperatorKey = "op" })
	for who, want := range map[string]bool{"": true, "Bearer you": true, "Bearer op": false} {
		resp := ask(t, http.MethodDelete, url+"/v1/streams/of-another", "", "Authorization", who)
		if whole(t, resp); refused(resp) != want {
			t.Errorf("%q stops it: %d", who, resp.StatusCode)
		}
	}
}

// TestIDsAreNoRights: who asks for a stream under the id of somebody else's at another instance owns what becomes of that request.
func TestIDsAreNoRights(t *testing.T) {
	operated := func(c *edge.Config) { c.OperatorKey = "op" }
	var chat string
	url, _ := start(t, func(c *edge.Config) { operated(c); chat = c.Chat })
	other, _ := start(t, func(c *edge.Config) { operated(c); c.Chat = chat })
	id := plainStream(t, url, "Authorization", "Bearer me")
	resp := ask(t, http.MethodPost, other+"/v1/chat/completions", asking(running), "Authorization", "Bearer you", "X-Request-Id", id)
	if body := whole(t, resp); resp.StatusCode != http.StatusBadRequest {
		t.Fatal(resp.StatusCode, body)
	}
	for _, who := range []struct {
		name string
		want int
	}{{"you", 404}, {"me", 403}, {"op", 202}} {
		resp = ask(t, http.MethodDelete, other+"/v1/streams/"+id, "", "Authorization", "Bearer "+who.name)
		if body := whole(t, resp); resp.StatusCode != who.want {
			t.Errorf("%s stops it: %d %s", who.name, resp.StatusCode, body)
		}
	}
}

// TestTokenMayExpireUnderItsReader, who reads on; one that comes back needs a new one, which takes the key.
func TestTokenMayExpireUnderItsReader(t *testing.T) {
	url, _ := start(t, func(c *edge.Config) { c.TokenTTL = time.Second })
	m := makeStream(t, url, "start m "+strings.Repeat("say x wait 100ms ", 20)+"end x", "Authorization", "Bearer me")
	resp := ask(t, http.MethodGet, url+m.Events+"?token="+m.Token, "")
	if all, text := events(t, resp); text != strings.Repeat("x", 20) || all[len(all)-1].name != "end" {
		t.Errorf("the reader has %q and %+v", text, all)
	}
	resp = ask(t, http.MethodGet, url+m.Events+"?token="+m.Token, "")
	if body := whole(t, resp); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "expired") {
		t.Errorf("with the expired token: %d %s", resp.StatusCode, body)
	}
	for who, want := range map[string]int{"": 401, "Bearer you": 403, "Bearer me": 201} {
		resp := ask(t, http.MethodPost, url+"/v1/streams/"+m.ID+"/token?token="+m.Token, "", "Authorization", who)
		body := whole(t, resp)
		if resp.StatusCode != want {
			t.Errorf("%q asks for a new token: %d %s", who, resp.StatusCode, body)
		}
		if want != 201 {
			continue
		}
		var again made
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
