// Package peers measures offpath's decisions beside other limiters', in one benchmark run. It is a
// module of its own, so that the others stay out of offpath's dependencies.
//
//	go test -run '^$' -bench Decide -cpu 1,2 -count 6 . | tee /tmp/decide.txt
package peers
