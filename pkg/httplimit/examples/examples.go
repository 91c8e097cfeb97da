// Package examples has the middleware of httplimit in each family of routers, as a service would
// have it. It is a module of its own, so that whoever uses one router does not get all of them.
//
// Each function takes the checker of a running service:
//
//	participant, err := offpath.Start(ctx, offpath.Options{
//		NATS: "nats://127.0.0.1:4222",
//		Rules: `
//	rules:
//	  - {name: per-user, key: [user], limit: 1000/hour}
//	  - {name: per-ip, key: [ip], limit: 100/minute}`,
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer participant.Close()
//	handler, err := Chi(participant.Checker())
//
// and shows three things: where the middleware goes, what it takes to get it there, and where the
// attribute route, the pattern that the router has chosen, comes from. The middleware itself reads
// the attribute ip; the attribute user is what Options.User returns.
package examples
