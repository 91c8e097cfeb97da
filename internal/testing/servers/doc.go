// Package servers starts private, real servers on free loopback ports: redis-server as a child
// process, alone or as a Redis Cluster, nats-server within this process, and other people's
// programs, such as proxies. Tests use it (through serverstest), and so does a load test that
// brings its own store; therefore nothing here knows of package testing.
//
// Nothing is left behind: Stop ends a server and removes its files, and on Linux the kernel kills
// the children of a process that died without calling it.
//
// What servers do wrong on command is the point of the package: they can be killed, paused,
// restarted on the same port with their data lost, or come back with an older snapshot.
package servers
