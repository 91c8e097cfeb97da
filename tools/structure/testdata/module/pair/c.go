package pair

func All(names ...string) (all []*A) {
	for _, name := range names {
		all = append(all, B{name: name}.owner())
	}
	return append(all, &A{b: B{name: "a name that makes this line longer than one hundred columns, but not than two"}})
}
