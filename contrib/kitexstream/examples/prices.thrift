// An ordinary Kitex service over TTHeader Streaming, for examples and tests.
namespace go prices

struct Symbol {
  1: string name
}

struct Price {
  1: i64 cents
}

// Prices has a method of each kind.
service Prices {
  Price Last(1: Symbol symbol)
  Price Watch(1: Symbol symbol) (streaming.mode="server")
  Symbol Record(1: Price price) (streaming.mode="client")
  Price Follow(1: Symbol symbol) (streaming.mode="bidirectional")
}
