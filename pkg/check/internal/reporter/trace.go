package reporter

const (
	Repeated Event = iota + 1
	Refused
	Answered
	Merged
	GivenUp
)

// trace asks t whether to trace a report that has just been made.
func (f *inFlightReport) trace(t Tracing, number uint32) {
	f.message.Trace, f.follow = "", nil
	if t != nil {
		f.message.Trace, f.follow = t(number, f.sequence, len(f.rows))
	}
}

// tell passes an event of the report to the function that follows it.
func (f *inFlightReport) tell(e Event) {
	if f.follow != nil {
		f.follow(e)
	}
}
