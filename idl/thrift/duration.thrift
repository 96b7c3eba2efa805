// Made of google/protobuf/duration.proto by scripts/gen. Do not edit.
namespace go durationpb

struct Duration {
  1: i64 seconds
  2: i32 nanos
}
