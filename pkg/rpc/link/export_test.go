package link

// MaxGreeting is maxGreeting, for tests.
const MaxGreeting = maxGreeting
