// Package inspect gives operators a view of a hop over gRPC: whence.stream.v1.Streams lists the
// running streams and returns the story of a stream, and the health service reports whether
// requests can be answered.
package inspect

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A page of List has DefaultPage streams, or as many as the caller requests, up to MaxPage streams
// and about maxPageBytes, which is well below the 4 MiB default limit of gRPC clients.
const (
	DefaultPage  = 1000
	MaxPage      = 10_000
	maxPageBytes = 2 << 20
)

// streams serves whence.stream.v1.Streams from a hop's ledger.
type streams struct {
	streamv1.UnimplementedStreamsServer
	hop   *rpc.Hop
	below func(ctx context.Context, id string) []*streamv1.Record
}

// Register serves whence.stream.v1.Streams for h. below returns a stream's records of the hops
// below; it is nil on the last hop.
func Register(s grpc.ServiceRegistrar, h *rpc.Hop, below func(ctx context.Context, id string) []*streamv1.Record) {
	streamv1.RegisterStreamsServer(s, &streams{hop: h, below: below})
}

// List implements streamv1.StreamsServer.
func (s *streams) List(_ context.Context, req *streamv1.ListRequest) (*streamv1.ListResponse, error) {
	after, err := ledger.ParseCursor(req.GetPageToken())
	if err != nil {
		return nil, streamerr.Via(s.hop.Name, streamerr.InvalidParam("page_token", "page_token must be the next_page_token of an earlier answer, or empty for the first page"))
	}
	size := int(min(req.GetPageSize(), MaxPage))
	if size == 0 {
		size = DefaultPage
	}
	resp, bytes := &streamv1.ListResponse{}, 0
	live, next := ledger.At(s.hop).LiveAfter(after, size)
	for i, r := range live {
		if bytes += proto.Size(r); bytes > maxPageBytes && i > 0 {
			next = ledger.CursorOf(live[i-1])
			break
		}
		resp.Streams = append(resp.Streams, r)
	}
	resp.NextPageToken = next.String()
	return resp, nil
}

// Why implements streamv1.StreamsServer.
func (s *streams) Why(ctx context.Context, req *streamv1.WhyRequest) (*streamv1.WhyResponse, error) {
	resp := &streamv1.WhyResponse{}
	if r := ledger.At(s.hop).Get(req.GetStreamId()); r != nil {
		resp.Hops = append(resp.Hops, r)
	}
	if s.below != nil {
		resp.Hops = append(resp.Hops, s.below(ctx, req.GetStreamId())...)
	}
	if len(resp.Hops) == 0 {
		return nil, streamerr.Via(s.hop.Name, s.hop.Unknown(req.GetStreamId()))
	}
	return resp, nil
}

// SetHealthy sets whether hs reports that requests can be answered, for service and for the whole
// process.
func SetHealthy(hs *health.Server, service string, healthy bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if healthy {
		status = healthpb.HealthCheckResponse_SERVING
	}
	hs.SetServingStatus("", status)
	hs.SetServingStatus(service, status)
}
