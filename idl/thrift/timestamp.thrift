// Made of google/protobuf/timestamp.proto by scripts/gen. Do not edit.
namespace go timestamppb

struct Timestamp {
  1: i64 seconds
  2: i32 nanos
}
