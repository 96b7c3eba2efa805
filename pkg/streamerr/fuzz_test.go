package streamerr_test

import (
	"reflect"
	"testing"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// FuzzParseJSON: an error object that was read is written and read again as the same error.
func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"no","param":"model","code":"model_not_found","whence":{"reason":"invalid","path":["edge"]}}}`))
	f.Add([]byte(`{"error":{"message":"busy","type":"server_error","code":503}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := streamerr.ParseJSON(b)
		if !ok {
			return
		}
		again, ok := streamerr.ParseJSON(e.JSON())
		if !ok || again.Message != e.Message || again.Reason != e.Reason || again.Param != e.Param || !reflect.DeepEqual(again.Path, e.Path) {
			t.Errorf("%q is %+v, then %+v", b, e, again)
		}
	})
}
