package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

// cuts is the number of times that one stream is cut.
const cuts = 20

func TestJavaScriptClientWorksInNode(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	node := tool(t, "node")
	w := run(t, separate, flags{worker: []string{"--no-prefix-cache", "--pace", "60"}})
	proxy := cutting(t, w.api, cuts, 1)
	asked, done := make(chan string), make(chan struct{})
	control := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-done
	}))
	defer control.Close()
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if out, err := runNode(ctx, node, "client-js", nil, "WHENCE_URL=http://"+w.api, "CUT_URL="+"http://"+proxy.Addr(), "CONTROL_URL="+control.URL); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}()
	for {
		select {
		case what := <-asked:
			switch what {
			case "/kill":
				w.processes[apiService].kill(t)
			case "/restart":
				w.restart(t, apiService)
			}
			done <- struct{}{}
			continue
		case <-ended:
		}
		break
	}
	if left := proxy.Uncut(); left > 0 {
		t.Errorf("%d of %d connections were not cut", left, cuts)
	}
	w.idle(t)
}

func TestJavaScriptClientWorksInABrowser(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	tool(t, "node")
	chromium := tool(t, "chromium", "chromium-browser", "google-chrome")
	mux := http.NewServeMux()
	mux.Handle("/client/", http.StripPrefix("/client/", http.FileServer(http.Dir("../clients/js/src"))))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><title>client</title>`))
	})
	page := httptest.NewServer(mux)
	defer page.Close()
	w := run(t, allInOne, flags{worker: []string{"--no-prefix-cache", "--pace", "60"}, api: []string{"--cors-origin", page.URL}})
	proxy := cutting(t, w.api, cuts, 2)
	nodeTest(t, "browser", nil, "CLIENT_PAGE="+page.URL, "CUT_URL="+"http://"+proxy.Addr(), "CHROMIUM="+chromium)
	if left := proxy.Uncut(); left > 0 {
		t.Errorf("%d of %d connections were not cut", left, cuts)
	}
	w.idle(t)
}
