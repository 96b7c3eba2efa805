package keys

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestKeysAreMadeAndRevoked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	made := map[string]string{}
	for _, k := range []Key{{Tenant: "a", ID: "first"}, {Tenant: "b", Expires: time.Date(2999, 1, 2, 3, 4, 5, 0, time.UTC)}, {Tenant: "a", ID: "007"}} {
		if err := Change(path, func(text []byte) (changed []byte, err error) {
			changed, made[k.ID], err = Add(text, k)
			return changed, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	text, _ := os.ReadFile(path)
	for _, key := range made {
		if !strings.HasPrefix(key, "sk-") || len(key) < 20 || strings.Contains(string(text), key) {
			t.Errorf("the key %q, in %s", key, text)
		}
	}
	find := func(key string) *Entry {
		t.Helper()
		ring, err := Load(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := ring.Find(t.Context(), "Bearer "+key)
		return h.Entry
	}
	if e := find(made[""]); e.Tenant != "b" || e.Expires.Year() != 2999 || find(made["first"]).ID != "first" || find(made["007"]).ID != "007" {
		t.Errorf("%+v", e)
	}
	revoke := func(id string) error {
		return Change(path, func(text []byte) ([]byte, error) { return Revoke(text, id) })
	}
	if err := revoke(find(made[""]).ID); err != nil {
		t.Error(err)
	}
	if err := revoke("007"); err != nil || find(made[""]) != nil || find(made["007"]) != nil || find(made["first"]) == nil {
		t.Error(err)
	}
	if err := revoke("none"); err == nil {
		t.Error("an unknown key is revoked")
	}
	if err := revoke("first"); err != nil || find(made["first"]) != nil {
		t.Error("the last key cannot be revoked:", err)
	}
	if err := Change(path, func(text []byte) ([]byte, error) {
		text, _, err := Add(text, Key{Tenant: "a"})
		return text, err
	}); err != nil {
		t.Error("no key can be added after the last one was revoked:", err)
	}
}

// TestKeysHaveTheWeightOfTheirTenant also checks that the last key of a tenant with limits can be
// revoked.
func TestKeysHaveTheWeightOfTheirTenant(t *testing.T) {
	text := []byte("tenants: {heavy: {streams: 3}}\nkeys: [{key: one, id: one, tenant: heavy, weight: 3}, {key: two, tenant: light}]\n")
	for tenant, want := range map[string]uint32{"heavy": 3, "light": 1, "new": 1} {
		changed, key, err := Add(text, Key{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		ring, err := Parse(changed, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(tenant, err)
		}
		if h, err := ring.Find(t.Context(), "Bearer "+key); err != nil || h.Entry.Weight != want {
			t.Errorf("%s: %+v, %v", tenant, h, err)
		}
	}
	changed, err := Revoke(text, "one")
	if err == nil {
		_, err = Parse(changed, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestChangesWaitForEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := Change(path, func(text []byte) ([]byte, error) {
				text, _, err := Add(text, Key{Tenant: "a"})
				return text, err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, _ := os.ReadFile(path)
	if entries, err := List(text); err != nil || len(entries) != 8 {
		t.Errorf("%d keys are there: %v", len(entries), err)
	}
	if err := Change(path, func(text []byte) ([]byte, error) { // an editor takes no lock
		if err := os.WriteFile(path, append(text, "# edited\n"...), 0o600); err != nil {
			return nil, err
		}
		text, _, err := Add(text, Key{Tenant: "b"})
		return text, err
	}); err == nil || !strings.Contains(err.Error(), "in the meantime") {
		t.Error("a change is lost:", err)
	}
}

// TestChangesKeepTheOwner: an api-service that runs as another user than the editor of the file can
// still read it.
func TestChangesKeepTheOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte("keys: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	user, group := os.Getuid(), os.Getgid()
	if user == 0 {
		user, group = 12345, 12346
	} else if groups, err := os.Getgroups(); err == nil && len(groups) > 0 {
		group = groups[len(groups)-1]
	}
	if err := os.Chown(path, user, group); err != nil {
		t.Fatal(err)
	}
	if err := Change(path, func(text []byte) ([]byte, error) {
		text, _, err := Add(text, Key{Tenant: "a"})
		return text, err
	}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if is := info.Sys().(*syscall.Stat_t); int(is.Uid) != user || int(is.Gid) != group || info.Mode().Perm() != 0o600 {
		t.Errorf("the file belongs to %d:%d, not %d:%d", is.Uid, is.Gid, user, group)
	}
}

func TestChangesKeepTheRest(t *testing.T) {
	const before = `# of the search team
tenants:
  search: {streams: 3} # for now
keys:
  # rotated in spring
  - {key: one, tenant: search}
  - key: two # theirs
    tenant: batch
    models: [m]
`
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Change(link, func(text []byte) ([]byte, error) {
		text, _, err := Add(text, Key{Tenant: "new"})
		return text, err
	}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(after), before) {
		t.Errorf("%s", after)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Error(info, err)
	}
	if entries, err := List(after); err != nil || len(entries) != 3 || entries[1].Models[0] != "m" || entries[2].Tenant != "new" {
		t.Error(entries, err)
	}
}

func TestFilesThatAreNotKeyFilesAreRefused(t *testing.T) {
	for _, text := range []string{"[", "- a", "keys: {}", "keys: 3", "keys: [3]"} {
		if _, err := List([]byte(text)); err == nil {
			t.Errorf("%q is listed", text)
		}
	}
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := Change(path, func(text []byte) ([]byte, error) {
		text, _, err := Add(text, Key{})
		return text, err
	}); err == nil {
		t.Error("a key without a tenant is added")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an invalid file is written")
	}
}
