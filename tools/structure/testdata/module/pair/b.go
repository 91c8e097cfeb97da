package pair

type B struct{ name string }

/*
A comment of several lines.
*/
func (b B) owner() *A {
	var local A // Local names are no reference, their types are.
	return &local
}

type hidden struct{}

// Exported is a method of a type that is not exported.
func (hidden) Exported() {}
