package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/storetest"
)

func TestContractOnOneRedis(t *testing.T) {
	admin := empty(t)
	for name, remember := range map[string]int{"Remembering": 0, "RememberingLittle": 8, "RememberingNothing": -1} {
		t.Run(name, func(t *testing.T) {
			var only []string
			if testing.Short() && remember != 0 {
				only = []string{"Reading", "Generations", "Order", "Random"} // what reads previous buckets
			}
			contract(t, admin, Options{Remember: remember}, only...)
		})
	}
}

func contract(t *testing.T, admin redis.UniversalClient, o Options, only ...string) {
	storetest.Run(t, storetest.InRedis(admin, func(t testing.TB) *Store { return open(t, o) }), only...)
}
