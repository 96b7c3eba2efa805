package callctx

import (
	"context"
	"reflect"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// Outgoing returns the headers that ctx has for a call, as alternating keys and values. It is
// metadata.FromOutgoingContext without its map, which is the largest object of a call's beginning.
func Outgoing(ctx context.Context) (pairs []string) {
	if lists, ok := added(ctx.Value(outgoingKey)); ok {
		for i := range lists.Len() {
			list := lists.Index(i)
			for at := 0; at+1 < list.Len(); at += 2 {
				pairs = append(pairs, strings.ToLower(list.Index(at).String()), list.Index(at+1).String())
			}
		}
		return pairs
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	return frame.Pairs(md)
}

// added returns the headers that metadata.AppendToOutgoingContext has added, a [][]string, if there are
// no others. raw is what grpc-go keeps in the context: a struct of a metadata.MD and this list of lists.
func added(raw any) (lists reflect.Value, ok bool) {
	v := reflect.ValueOf(raw)
	if v.Kind() != reflect.Struct || v.NumField() != 2 {
		return reflect.Value{}, false
	}
	md, lists := v.Field(0), v.Field(1)
	ok = md.Type() == reflect.TypeFor[metadata.MD]() && md.Len() == 0 && lists.Type() == reflect.TypeFor[[][]string]()
	return lists, ok
}
