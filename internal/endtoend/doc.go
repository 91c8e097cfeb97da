// Package endtoend holds the tests in which checkers and aggregators meet: in virtual time over the
// in-memory bus, where thousands of bad networks fit into seconds, and over real NATS and Redis.
package endtoend
