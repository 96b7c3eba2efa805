package rpc

import (
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// SetHealthy has hs say whether requests can be answered: for the service of that name, and for the process as a whole.
func SetHealthy(hs *health.Server, service string, healthy bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if healthy {
		status = healthpb.HealthCheckResponse_SERVING
	}
	hs.SetServingStatus("", status)
	hs.SetServingStatus(service, status)
}
