package ending_test

import (
	"testing"

	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/link/ending"
)

// FuzzErr: any status of a callee is an error, and the same error when it is encoded again.
func FuzzErr(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{8, 13, 18, 2, 'n', 'o'})
	f.Add([]byte{8, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		err := ending.Err(encoded)
		if err == nil {
			t.Fatal("an ending without an error")
		}
		st, ok := status.FromError(err)
		if !ok { // io.EOF
			return
		}
		if again := status.Convert(ending.Err(ending.Encode(err))); again.Code() != st.Code() {
			t.Errorf("%v is %v when it is encoded again", st, again)
		}
	})
}
