package conversation_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/whence-dev/whence/api-service/responses/conversation"
)

func TestNamesOfFunctionsFitAndDiffer(t *testing.T) {
	long := strings.Repeat("n", 70)
	seen := map[string]string{}
	for _, of := range [][2]string{
		{"n", "f"}, {strings.Repeat("n", 61), "f"}, {strings.Repeat("n", 62), "f"}, {strings.Repeat("n", 62), "g"}, {long, "search"}, {long + "x", "search"},
		{"n", long}, {"n", long + "x"}, {long, long}, {strings.Repeat("é", 40), "f"}, {"n", strings.Repeat("é", 40)},
	} {
		flat := conversation.Flat(of[0], of[1])
		if len(flat) > 64 || !utf8.ValidString(flat) || flat != conversation.Flat(of[0], of[1]) {
			t.Errorf("%q is %q", of, flat)
		}
		if other, ok := seen[flat]; ok {
			t.Errorf("%q and %s are both %q", of, other, flat)
		}
		seen[flat] = of[0] + " " + of[1]
		if whole := of[0] + "__" + of[1]; len(whole) <= 64 && flat != whole {
			t.Errorf("%q is %q, although its names fit", of, flat)
		}
	}
	if flat := conversation.Flat(long, "search"); !strings.HasPrefix(flat, "nnn") || !strings.HasSuffix(flat, "__search") {
		t.Errorf("%q tells the model too little", flat)
	}
}
