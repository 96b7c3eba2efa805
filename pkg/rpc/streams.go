package rpc

import (
	"context"

	"google.golang.org/grpc"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// streams is whence.stream.v1.Streams over a hop's ledger.
type streams struct {
	streamv1.UnimplementedStreamsServer
	hop   *Hop
	below func(ctx context.Context, id string) []*streamv1.Record
}

// RegisterStreams serves whence.stream.v1.Streams for h. below returns what the hops below know of a stream; nil on the last.
func RegisterStreams(s grpc.ServiceRegistrar, h *Hop, below func(ctx context.Context, id string) []*streamv1.Record) {
	streamv1.RegisterStreamsServer(s, &streams{hop: h, below: below})
}

// List implements streamv1.StreamsServer.
func (s *streams) List(context.Context, *streamv1.ListRequest) (*streamv1.ListResponse, error) {
	return &streamv1.ListResponse{Streams: s.hop.Ledger.Live()}, nil
}

// Why implements streamv1.StreamsServer.
func (s *streams) Why(ctx context.Context, req *streamv1.WhyRequest) (*streamv1.WhyResponse, error) {
	resp := &streamv1.WhyResponse{}
	if r := s.hop.Ledger.Get(req.GetStreamId()); r != nil {
		resp.Hops = append(resp.Hops, r)
	}
	if s.below != nil {
		resp.Hops = append(resp.Hops, s.below(ctx, req.GetStreamId())...)
	}
	if len(resp.Hops) == 0 {
		return nil, streamerr.Via(s.hop.Name, s.hop.unknown(req.GetStreamId()))
	}
	return resp, nil
}
