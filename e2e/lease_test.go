package e2e

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestOnlyWorkerKeepsItsStreamsWithoutItsLease: somebody revokes the lease of the only worker,
// again and again. No request is refused, because the worker answers its probes.
func TestOnlyWorkerKeepsItsStreamsWithoutItsLease(t *testing.T) {
	t.Parallel()
	server := startEtcd(t)
	w := above(t, "", "--worker", server.workers())
	worker := startWorker(t, "llm-worker/1", model, "--register", server.workers())
	worker.logged(t, "that it is registered", func(r record) bool { return r.Msg == "registered" })
	w.ready(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.Split(server.url, "/")[2]}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		leases, err := client.Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range leases.Leases {
			_, _ = client.Revoke(t.Context(), lease.ID) // the worker may have a new one
		}
		for range 20 {
			w.answer(t, greedy("Hi.", "max_tokens", 1))
		}
	}
}
