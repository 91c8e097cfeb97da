package memstore

import "strings"

// expiring holds values by key. They live in two maps, so that expired ones go with their whole map
// and nothing ever walks the keys: writes go to the young map, and when everything in the old one
// has expired, the young one becomes the old.
type expiring[T any] struct {
	young, old generation[T]
}

type generation[T any] struct {
	byText map[string]*T
	until  int64 // when the last of the values expires
}

func (a *expiring[T]) rotate(now int64) {
	if a.old.until <= now && len(a.young.byText) > 0 || a.young.byText == nil {
		a.old = a.young
		a.young = generation[T]{byText: make(map[string]*T)}
	}
}

// find returns a key's value, nil if there is none.
func (a *expiring[T]) find(text string) *T {
	if v := a.young.byText[text]; v != nil {
		return v
	}
	return a.old.byText[text]
}

// keep puts the key, with this value, into the young map, until at least the given time. A value
// from the old map expires no later than that map, and so before the young one can go.
func (a *expiring[T]) keep(text string, v *T, until int64) {
	a.young.until = max(a.young.until, until)
	if a.young.byText[text] == v {
		return
	}
	delete(a.old.byText, text)
	a.young.byText[strings.Clone(text)] = v // text is part of a whole message's
}

func (a *expiring[T]) expired(now int64) bool { return a.young.until <= now && a.old.until <= now }

func (a *expiring[T]) clone(one func(*T) *T) expiring[T] {
	return expiring[T]{young: a.young.clone(one), old: a.old.clone(one)}
}

func (g generation[T]) clone(one func(*T) *T) generation[T] {
	return generation[T]{byText: cloneAll(g.byText, one), until: g.until}
}
