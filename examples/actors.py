"""Plain actors: typed messages, a supervisor's decision, a death watch. No device."""

import asyncio

import callboard as cb
from callboard.actors import Terminated


class Deposit(cb.Request["Account", int]):
    """Answered with the new balance."""

    amount: int


class Account(cb.Actor):
    """An account; what it holds is lost when it fails, and the supervisor starts it again."""

    def __init__(self) -> None:
        self.balance = 0

    @Deposit.handles
    def deposit(self, m: Deposit) -> int:
        if m.amount < 0:
            raise ValueError(f"a deposit of {m.amount}")
        self.balance += m.amount
        return self.balance


class Observer(cb.Actor):
    """Notes whose end it is told of."""

    def __init__(self, watched: "cb.ActorRef[Account]", noted: "asyncio.Future[str]") -> None:
        self.watch(watched)
        self.noted = noted

    @Terminated.handles
    def terminated(self, m: Terminated) -> None:
        self.noted.set_result(m.ref.path)


async def main() -> None:
    async with cb.System("bank") as system:
        account = system.actor_of(cb.Props(Account), "account")
        noted: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        system.actor_of(cb.Props(Observer, account, noted), "observer")

        balances = await asyncio.gather(*(account.ask(Deposit(amount=n)) for n in (10, 20, 30)))
        assert balances == [10, 30, 60]  # in the order of the calls
        try:
            await account.ask(Deposit(amount=-1))
        except ValueError as e:
            print(f"the asker is told: {e}")
        assert await account.ask(Deposit(amount=5)) == 5  # a new instance behind the same address

        await account.stop_and_wait(timeout=1.0)
        print(f"ended: {await noted}")


if __name__ == "__main__":
    asyncio.run(main())
