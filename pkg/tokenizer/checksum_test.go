package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func checksum(t *testing.T, data []byte) string {
	t.Helper()
	sum, err := Checksum(data)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestChecksumCoversTheMeaningOfTokenIDs(t *testing.T) {
	same := checksum(t, small())
	if method, sum, ok := strings.Cut(same, ":"); !ok || method != "1" || len(sum) != 64 {
		t.Fatal(same)
	}
	for name, section := range map[string]string{
		"version":                      `"version":"1.0"`,
		"truncation and padding":       `"truncation":{"max_length":512},"padding":{"strategy":"BatchLongest"}`,
		"post-processor":               `"post_processor":{"type":"ByteLevel","trim_offsets":false}`,
		"no normalizer, spelled out":   `"normalizer":null`,
		"merges as pairs, other order": `"model":{"merges":[["a","b"]],"vocab":{"c":3,"ab":2,"b":1,"a":0},"type":"BPE","dropout":null}`,
		"no type":                      `"model":{"vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":["#version: 0.2","a b"]}`,
	} {
		if got := checksum(t, small(section)); got != same {
			t.Errorf("%s: the checksum differs, but the meaning does not", name)
		}
	}
	seen := map[string]string{same: "the file"}
	for name, section := range map[string]string{
		"a token's id":     `"model":{"type":"BPE","vocab":{"a":1,"b":0,"ab":2,"c":3},"merges":["a b"]}`,
		"a token's text":   `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"d":3},"merges":["a b"]}`,
		"a token more":     `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3,"d":5},"merges":["a b"]}`,
		"no merges":        `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":[]}`,
		"byte fallback":    `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":["a b"],"byte_fallback":true}`,
		"fused unknowns":   `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"c":3},"merges":["a b"],"fuse_unk":true}`,
		"a special token":  `"added_tokens":[{"id":4,"content":"<s>","special":false}]`,
		"its id":           `"added_tokens":[{"id":5,"content":"<s>","special":true}]`,
		"how it matches":   `"added_tokens":[{"id":4,"content":"<s>","special":true,"lstrip":true}]`,
		"no added tokens":  `"added_tokens":[]`,
		"the normalizer":   `"normalizer":{"type":"NFC"}`,
		"another one":      `"normalizer":{"type":"NFKC"}`,
		"a pre-tokenizer":  `"pre_tokenizer":{"type":"NFC"}`,
		"the decoder":      `"decoder":{"type":"ByteLevel"}`,
		"its options":      `"decoder":{"type":"ByteLevel","trim_offsets":true}`,
		"its options anew": `"decoder":{"type":"ByteLevel","trim_offsets":false}`,
	} {
		got := checksum(t, small(section))
		if other, ok := seen[got]; ok {
			t.Errorf("%s: the checksum equals that of %s", name, other)
		}
		seen[got] = name
	}
}

func TestChecksumIgnoresTheFormatOfTheFile(t *testing.T) {
	data, err := os.ReadFile("../../internal/whencetiny/model/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	anew, err := json.MarshalIndent(file, "", "\t")
	if err != nil || bytes.Equal(anew, data) {
		t.Fatal(err)
	}
	if checksum(t, anew) != checksum(t, data) {
		t.Error("white space or the order of keys changes the checksum")
	}
}

func TestChecksumOfAnInvalidFileFails(t *testing.T) {
	for _, bad := range []string{``, `{}`, `{"model":7}`, `{"model":{},"added_tokens":[{"content":"x"}]}`} {
		if sum, err := Checksum([]byte(bad)); err == nil {
			t.Errorf("%s: %s", bad, sum)
		}
	}
}

// BenchmarkChecksum uses a file as large as the largest of today.
func BenchmarkChecksum(b *testing.B) {
	data := largeFile(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Checksum(data); err != nil {
			b.Fatal(err)
		}
	}
}
