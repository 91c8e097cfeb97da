package accesslog

// clients numbers those who ask, in the order in which they come.
type clients struct {
	group   func(string) string // nil for each by itself
	names   []string
	logged  map[string]int // by name in the log
	grouped map[string]int // by name of the group
}

func newClients(group func(string) string) *clients {
	return &clients{group: group, logged: make(map[string]int), grouped: make(map[string]int)}
}

// of returns the number of a client in the log.
func (c *clients) of(client string) int {
	number, known := c.logged[client]
	if !known {
		number = c.add(client)
		c.logged[client] = number
	}
	return number
}

// add returns the number of a client that is new in the log. His group need not be.
func (c *clients) add(client string) int {
	name := client
	if c.group != nil {
		name = c.group(client)
	}
	number, known := c.grouped[name]
	if !known {
		number = len(c.names)
		c.grouped[name] = number
		c.names = append(c.names, name)
	}
	return number
}
