package tokenizer

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestMergesAreReadInEitherForm(t *testing.T) {
	want := mergeList{{"a", "b"}, {"\"", "\\"}, {"é", "Ġ🙂"}, {"[", "]"}}
	for _, text := range []string{
		`["a b", "\" \\", "\u00e9 Ġ\ud83d\ude42", "[ ]"]`,
		"[\"#version: 0.2\",\"a b\"\n,\t\"\\u0022 \\\\\",\"é Ġ🙂\",\"[ ]\"]",
		`[["a","b"],["\"","\\"],["\u00e9","Ġ\ud83d\ude42"],["[","]"]]`,
		"[ [ \"a\" , \"b\" ] , [\"\\u0022\",\"\\\\\"],[\"é\",\"Ġ🙂\"] , [\"[\",\"]\"] ]",
	} {
		var got mergeList
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func TestMergesOfNeitherFormAreRefused(t *testing.T) {
	for _, text := range []string{
		`{}`, `"a b"`, `7`, `["a b",["c","d"]]`, `[["a","b"],"c d"]`, `[["a"]]`, `[["a","b","c"]]`, `[["a",1]]`, `[1]`, `[null]`, `["ab"]`, `["a b c"]`, `[[]]`, `[{}]`,
	} {
		var got mergeList
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestVocabulariesOfScores(t *testing.T) {
	var got vocabulary
	if err := json.Unmarshal([]byte(` [["<unk>",0],[ "a" , -1.5e0 ],["\u00e9",-0.0],["a",-15.275492379532281],["b",-1E+2]] `), &got); err != nil {
		t.Fatal(err)
	}
	// The Rust library reads the fourth score as its neighbour: it divides 15275492379532281, rounded.
	want := vocabulary{
		map[string]uint32{"<unk>": 0, "a": 3, "é": 2, "b": 4},
		[]scoredToken{{"<unk>", 0}, {"a", -1.5}, {"é", 0}, {"a", -15.27549237953228}, {"b", -100}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	for _, text := range []string{`[1]`, `[["a"]]`, `[["a",1,2]]`, `[[1,"a"]]`, `[["a","1"]]`, `[["a",[1]]]`, `[["a",null]]`, `[["a",1e999]]`, `[{"a":1}]`, `["a",1]`} {
		if err := json.Unmarshal([]byte(text), new(vocabulary)); err == nil {
			t.Errorf("%s is a vocabulary", text)
		}
	}
}

// FuzzVocabulary compares the result with encoding/json's.
func FuzzVocabulary(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":0,"b":1}`, ` { "\u0041" : 7 , "\"\\\/" : 4294967295 } `, `{"a":4294967296}`, `{"a":-1}`, `{"a":1.5}`, `{"a":"b"}`, `{"a":{}}`, `{"a":[1]}`, `[1]`, `"a"`, `7`,
		"{\"\xff\":1}", `{"\ud800":1}`, `{"a":1,"a":2}`, `{"":3}`, `{"a":1e2}`, `{",":1,":":2,"{":3}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "null") {
			t.Skip("encoding/json reads 0, and this package reports an error")
		}
		if strings.HasPrefix(strings.TrimSpace(text), "[") {
			t.Skip("a list of tokens with scores")
		}
		var got vocabulary
		var want map[string]uint32
		err, wantErr := json.Unmarshal([]byte(text), &got), json.Unmarshal([]byte(text), &want)
		if (err == nil) != (wantErr == nil) || err == nil && !maps.Equal(got.ids, want) {
			t.Errorf("%q\n got %v, %v\nwant %v, %v", text, got, err, want, wantErr)
		}
	})
}
