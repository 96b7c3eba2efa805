package edge_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/whence-dev/whence/api-service/edge"
	streamstory "github.com/whence-dev/whence/api-service/story"
	"github.com/whence-dev/whence/internal/polltest"
)

// listed returns the ids of a caller's list of live streams.
func listed(t *testing.T, url, key string) (ids []string) {
	t.Helper()
	var list struct{ Streams []struct{ ID string } }
	body := whole(t, ask(t, http.MethodGet, url+"/v1/streams", "", bearer(key)...))
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(body, err)
	}
	for _, s := range list.Streams {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestTenantsUseTheSameNames: streams of two tenants have the same X-Request-Id at the same time,
// at one instance or at two with one chat-service. Each tenant sees, explains and stops its own
// stream by that name, and does not learn of the other one.
func TestTenantsUseTheSameNames(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	for _, instances := range []int{1, 2} {
		var chat string
		change := func(c *edge.Config) { keyed(c); c.OperatorKey = "op" }
		url, _ := start(t, func(c *edge.Config) { change(c); chat = c.Chat })
		other := url
		if instances == 2 {
			other, _ = start(t, func(c *edge.Config) { change(c); c.Chat = chat })
		}
		mine := plainStream(t, url, append(bearer("me"), "X-Request-Id", "job")...)
		yours := plainStream(t, other, append(bearer("you"), "X-Request-Id", "job")...)
		if mine == yours || !strings.HasPrefix(mine, "job.") || !strings.HasPrefix(yours, "job.") {
			t.Fatalf("the streams are %s and %s", mine, yours)
		}
		if got := listed(t, url, "me-too"); !slices.Equal(got, []string{mine}) {
			t.Errorf("the list of the first tenant has %q", got)
		}
		if got := listed(t, other, "you"); !slices.Equal(got, []string{yours}) {
			t.Errorf("the list of the second tenant has %q", got)
		}
		for key, want := range map[string]string{"me": mine, "you": yours} {
			at := map[string]string{"me": url, "you": other}[key]
			for _, name := range []string{"job", want} {
				var story streamstory.Story
				body := whole(t, ask(t, http.MethodGet, at+"/v1/streams/"+name, "", bearer(key)...))
				if err := json.Unmarshal([]byte(body), &story); err != nil || story.ID != want || story.State != "live" {
					t.Errorf("the story of %s for %s: %s, %v", name, key, body, err)
				}
			}
		}
		wantStatus(t, http.MethodGet, other+"/v1/streams/"+mine, "", "you", http.StatusNotFound)
		resp := ask(t, http.MethodPost, other+"/v1/chat/completions", asking("start m end x"), append(bearer("me-too"), "X-Request-Id", "job")...)
		if body, id := whole(t, resp), resp.Header.Get("X-Request-Id"); instances == 1 && (resp.StatusCode != http.StatusOK || id == mine || !strings.HasPrefix(id, "job-") || !strings.HasSuffix(id, strings.TrimPrefix(mine, "job"))) {
			t.Errorf("the first tenant uses the name twice: %d %s %s", resp.StatusCode, id, body)
		}
		wantStatus(t, http.MethodDelete, url+"/v1/streams/job", "", "you", http.StatusAccepted)
		polltest.Eventually(t, "the second tenant's stream ends", func() bool { return len(listed(t, other, "you")) == 0 })
		if got := listed(t, url, "me"); !slices.Equal(got, []string{mine}) {
			t.Errorf("after the second tenant's stop, the list of the first tenant has %q", got)
		}
	}
}

// TestANameThatIsTakenAtAnotherInstance: two api-services before one chat-service get streams of the same name.
// The second stream is answered under an id of its own, which its response tells, and by which it is stopped,
// explained and read again. The first one learns nothing of it.
func TestANameThatIsTakenAtAnotherInstance(t *testing.T) {
	var chat string
	url, _ := start(t, func(c *edge.Config) { chat = c.Chat })
	other, _ := start(t, func(c *edge.Config) { c.Chat = chat })
	named := []string{"X-Request-Id", "job"}
	first := plainStream(t, url, named...)
	second := plainStream(t, other, named...)
	if first != "job" || !strings.HasPrefix(second, "job-") {
		t.Fatalf("the streams are %q and %q", first, second)
	}
	for at, id := range map[string]string{url: first, other: second} {
		if got := listed(t, at, ""); !slices.Equal(got, []string{id}) {
			t.Errorf("the list of the instance of %s has %q", id, got)
		}
		var story streamstory.Story
		body := whole(t, ask(t, http.MethodGet, at+"/v1/streams/"+id, ""))
		if err := json.Unmarshal([]byte(body), &story); err != nil || story.ID != id || story.State != "live" || len(story.Hops) != 2 {
			t.Errorf("the story of %s: %s, %v", id, body, err)
		}
	}
	resp := ask(t, http.MethodPost, other+"/v1/chat/completions", asking("start m say x end x"), named...)
	if body, id := whole(t, resp), resp.Header.Get("X-Request-Id"); resp.StatusCode != http.StatusOK || id == second || !strings.HasPrefix(id, "job-") || !strings.Contains(body, id) {
		t.Errorf("a whole answer: %d, id %q: %s", resp.StatusCode, id, body)
	}
	resp = ask(t, http.MethodPost, other+"/v1/chat/completions", strings.Replace(asking("start m say x end x"), "{", `{"stream":true,`, 1), append(named, "X-Leave", "linger:30s")...)
	body, id, token := whole(t, resp), resp.Header.Get("X-Request-Id"), resp.Header.Get("X-Read-Token")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(id, "job-") || !strings.Contains(body, id) {
		t.Errorf("a kept answer: %d, id %q: %s", resp.StatusCode, id, body)
	}
	resp = ask(t, http.MethodGet, other+"/v1/streams/"+id+"/events?token="+token, "")
	if body := whole(t, resp); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"x"`) {
		t.Errorf("the kept answer is read again: %d %s", resp.StatusCode, body)
	}
	wantStatus(t, http.MethodDelete, other+"/v1/streams/"+second, "", "", http.StatusAccepted)
	polltest.Eventually(t, "the second stream ends", func() bool { return len(listed(t, other, "")) == 0 })
	if got := listed(t, url, ""); !slices.Equal(got, []string{first}) {
		t.Errorf("after the stop of the second stream, the list of the first instance has %q", got)
	}
}

// TestStrangersUseOfAGeneratedIDHidesNothing: a tenant that knows the id of another tenant's stream uses
// it for a stream of its own, while the other runs and after it has ended. The owner still finds its own
// stream by the id, and the other tenant learns nothing of it.
func TestStrangersUseOfAGeneratedIDHidesNothing(t *testing.T) {
	url, _ := start(t, keyFile(t, twoTenants))
	mine := plainStream(t, url, bearer("me")...)
	story := func(key string) (told streamstory.Story) {
		t.Helper()
		body := whole(t, ask(t, http.MethodGet, url+"/v1/streams/"+mine, "", bearer(key)...))
		_ = json.Unmarshal([]byte(body), &told) // another tenant gets an error
		return told
	}
	for _, state := range []string{"live", "ended"} {
		resp := ask(t, http.MethodPost, url+"/v1/chat/completions", asking("start m say x end x"), append(bearer("you"), "X-Request-Id", mine)...)
		if body := whole(t, resp); resp.StatusCode != http.StatusOK || resp.Header.Get("X-Request-Id") == mine {
			t.Errorf("the other tenant's stream: %d %s, with the id %s", resp.StatusCode, body, resp.Header.Get("X-Request-Id"))
		}
		if got := story("me"); got.ID != mine || got.State != state {
			t.Errorf("the owner finds %q, %q; want %q, %q", got.ID, got.State, mine, state)
		}
		if got := story("you"); got.ID != "" {
			t.Errorf("the other tenant finds %q", got.ID)
		}
		wantStatus(t, http.MethodDelete, url+"/v1/streams/"+mine, "", "you", http.StatusNotFound)
		if state == "live" {
			wantStatus(t, http.MethodDelete, url+"/v1/streams/"+mine, "", "me", http.StatusAccepted)
			polltest.Eventually(t, "the owner's stream ends", func() bool { return len(listed(t, url, "me")) == 0 })
		}
	}
}

// TestOperatorFindsTheStreamsOfAName: an operator asks for a client's name, and the error lists the ids of all
// tenants' streams with that name.
func TestOperatorFindsTheStreamsOfAName(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	url, _ := start(t, func(c *edge.Config) { keyed(c); c.OperatorKey = "op" })
	mine := plainStream(t, url, append(bearer("me"), "X-Request-Id", "job")...)
	yours := plainStream(t, url, append(bearer("you"), "X-Request-Id", "job")...)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		resp := ask(t, method, url+"/v1/streams/job", "", bearer("op")...)
		if body := whole(t, resp); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, mine) || !strings.Contains(body, yours) {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	wantStatus(t, http.MethodGet, url+"/v1/streams/"+mine, "", "op", http.StatusOK)
	wantStatus(t, http.MethodDelete, url+"/v1/streams/"+yours, "", "op", http.StatusAccepted)
}

// TestIDsWithATag: what a client may have as an id, and the id that its stream gets.
func TestIDsWithATag(t *testing.T) {
	url, _ := start(t, keyFile(t, twoTenants))
	id := func(key, name string) string {
		resp := ask(t, http.MethodPost, url+"/v1/chat/completions", asking("start m say x end x"), append(bearer(key), "X-Request-Id", name)...)
		if body := whole(t, resp); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode, body)
		}
		return resp.Header.Get("X-Request-Id")
	}
	generated := id("me", "")
	mine, yours := id("me", "a"), id("you", "a")
	tag := strings.TrimPrefix(mine, "a")
	for name, want := range map[string]string{
		mine:                     mine,            // sent again
		yours:                    yours + tag,     // another tenant's whole id is a name like any other
		generated:                generated + tag, // a name like any other
		strings.Repeat("x", 120): "",              // too long with a tag
		strings.Repeat("x", 119): strings.Repeat("x", 119) + tag,
	} {
		if got := id("me", name); got != want && (want != "" || !strings.HasPrefix(got, "str-")) {
			t.Errorf("%s gets the id %s, want %s", name, got, want)
		}
	}
}
